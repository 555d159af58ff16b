//! The extended state in a signal frame: an XSAVE area in user memory, which the program can change.

use super::{
    regs::FpuArea,
    uapi::{FP_SOFTWARE_BYTES, FP_XSTATE_MAGIC1, FP_XSTATE_MAGIC2, FP_XSTATE_MAGIC2_SIZE},
};
use crate::abi::Plain;

/// The bits of MXCSR that may be set. XRSTOR faults if any other bit is set.
const MXCSR_MASK: u32 = 0xffff;

/// Returns the size in bytes of the extended state in a signal frame: `size` bytes of state and the second magic.
pub fn frame_size(size: usize) -> usize {
    size + FP_XSTATE_MAGIC2_SIZE
}

/// Marks an XSAVE area as the extended state of a signal frame: writes the software bytes, and writes the second magic
/// after the state. `bytes` has the length that [`frame_size`] returns for `size`.
pub fn mark(bytes: &mut [u8], size: usize, features: u64) {
    let software = &mut bytes[FP_SOFTWARE_BYTES..512];
    software.fill(0);
    FP_XSTATE_MAGIC1.to_bytes(&mut software[0..4]);
    (frame_size(size) as u32).to_bytes(&mut software[4..8]);
    features.to_bytes(&mut software[8..16]);
    (size as u32).to_bytes(&mut software[16..20]);
    FP_XSTATE_MAGIC2.to_bytes(&mut bytes[size..size + 4]);
}

/// The part of the extended state that a signal frame contains, according to the markers in its legacy region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// Only the legacy region, because the markers are missing or inconsistent.
    Legacy,
    /// The number of bytes from the start of the extended state that the frame contains. These bytes are valid only if
    /// `FP_XSTATE_MAGIC2` follows them, which the caller checks.
    Extended(usize),
}

/// Reads the markers in `legacy`, the legacy region of a frame. `size` is the size of the complete extended state.
pub fn extent(legacy: &[u8], size: usize) -> Extent {
    let software = &legacy[FP_SOFTWARE_BYTES..512];
    let state = u32::from_bytes(&software[16..20]) as usize;
    let extended = u32::from_bytes(&software[4..8]) as usize;
    if u32::from_bytes(&software[0..4]) == FP_XSTATE_MAGIC1
        && state >= FpuArea::HEADER + 64
        && state <= size
        && state <= extended
    {
        Extent::Extended(state)
    } else {
        Extent::Legacy
    }
}

/// The extended state of a signal frame is invalid: XRSTOR would fault on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unloadable;

/// Checks an area from user memory. The conditions are those of XRSTOR, or of FXRSTOR if `extended` is false. Linux
/// lets the processor check the area (Linux 7.3 `arch/x86/kernel/fpu/signal.c`, `restore_fpregs_from_user`).
///
/// # Errors
/// `Unloadable` if reserved bits of MXCSR are set, or if the header contains a feature that is not enabled or does not
/// describe the standard format.
pub fn check(area: &FpuArea, features: u64, extended: bool) -> Result<(), Unloadable> {
    let header = &area.bytes[FpuArea::HEADER..FpuArea::HEADER + 64];
    let plain = header[8..24].iter().all(|&byte| byte == 0);
    let enabled = u64::from_bytes(&header[..8]) & !features == 0;
    let mxcsr = u32::from_bytes(&area.bytes[24..28]);
    if mxcsr & !MXCSR_MASK != 0 || extended && !(plain && enabled) {
        Err(Unloadable)
    } else {
        Ok(())
    }
}

/// Makes an area from user memory safe to load: clears reserved bits, and features that are not enabled. If `extended`
/// is false, first writes a header that describes only the legacy region (x87 and SSE).
pub fn sanitize(area: &mut FpuArea, features: u64, extended: bool) {
    let header = &mut area.bytes[FpuArea::HEADER..FpuArea::HEADER + 64];
    let present = if extended {
        u64::from_bytes(&header[..8])
    } else {
        3
    };
    header.fill(0);
    (present & features).to_bytes(&mut header[..8]);
    let mxcsr = u32::from_bytes(&area.bytes[24..28]) & MXCSR_MASK;
    mxcsr.to_bytes(&mut area.bytes[24..28]);
}

#[cfg(test)]
mod tests {
    use super::{Extent, FpuArea, Unloadable, check, extent, frame_size, mark, sanitize};

    #[test]
    fn what_the_processor_refuses_is_no_frame() {
        for (offset, value, extended, expected) in [
            (0, 0xff, true, Ok(())),
            // Bytes of MXCSR.
            (25, 0xff, true, Ok(())),
            (26, 0x01, true, Err(Unloadable)),
            (27, 0x80, false, Err(Unloadable)),
            // Bytes of the XSAVE header: the features (XSTATE_BV), the format (XCOMP_BV), and the reserved bytes after
            // them.
            (512, 0x07, true, Ok(())),
            (512, 0x08, true, Err(Unloadable)),
            (512, 0x08, false, Ok(())),
            (519, 0x80, true, Err(Unloadable)),
            (520, 0x01, true, Err(Unloadable)),
            (527, 0x80, true, Err(Unloadable)),
            (535, 0x01, true, Err(Unloadable)),
            (536, 0x01, true, Ok(())),
        ] {
            let mut area = FpuArea::INITIAL;
            area.bytes[offset] = value;
            assert_eq!(check(&area, 7, extended), expected, "{offset} {value:#x}");
        }
    }

    #[test]
    fn marks_are_found_again() {
        let mut bytes = FpuArea::INITIAL.bytes[..frame_size(832)].to_vec();
        assert_eq!(extent(&bytes, 832), Extent::Legacy);
        mark(&mut bytes, 832, 7);
        assert_eq!(extent(&bytes, 832), Extent::Extended(832));
        assert_eq!(extent(&bytes, 576), Extent::Legacy);
        assert_eq!(bytes[832..], 0x4650_5845_u32.to_le_bytes());
    }

    #[test]
    fn reserved_bits_do_not_reach_the_processor() {
        let mut area = FpuArea::INITIAL;
        area.bytes[24..28].fill(0xff);
        area.bytes[512..576].fill(0xff);
        sanitize(&mut area, 7, true);
        assert_eq!(area.bytes[24..28], [0xff, 0xff, 0, 0]);
        assert_eq!(area.bytes[512..520], [7, 0, 0, 0, 0, 0, 0, 0]);
        assert!(area.bytes[520..576].iter().all(|byte| *byte == 0));
        sanitize(&mut area, 7, false);
        assert_eq!(area.bytes[512], 3);
    }
}
