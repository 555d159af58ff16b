//! The debug registers of a thread (Linux 7.2 `arch/x86/kernel/hw_breakpoint.c`, `arch/x86/kernel/ptrace.c`).

use crate::errno::Errno;

/// The reserved bits of DR6, which are one after a reset. `DebugRegisters` stores DR6 with these bits inverted, so that
/// the initial value is 0.
const STATUS_RESERVED: u64 = 0xffff_0ff0;
/// The bits of DR6 that state which breakpoints were hit, one bit per breakpoint.
const STATUS_HITS: u64 = 0xf;
/// The bit of DR6 that states that a single step caused the exception.
pub const STATUS_STEP: u64 = 1 << 14;
/// The bits of DR7 that cannot be set.
const CONTROL_RESERVED: u64 = 0xffff_ffff_0000_fc00;
/// The bit of DR7 for general detect, which makes accesses to debug registers trap. It is never set.
const CONTROL_DETECT: u64 = 1 << 13;
/// The bits of DR7 that enable breakpoints.
const CONTROL_ENABLE: u64 = 0xff;

/// The hardware breakpoints of a thread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DebugRegisters {
    /// DR0 to DR3: the addresses of the breakpoints.
    pub addresses: [u64; 4],
    /// DR6: which breakpoints were hit. The reserved bits are stored inverted, so that they are 0.
    pub status: u64,
    /// DR7: which breakpoints are enabled, and their types and lengths.
    pub control: u64,
}

impl DebugRegisters {
    /// Returns whether a breakpoint is enabled.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.control & CONTROL_ENABLE != 0
    }

    /// Returns the value that a tracer reads from register DR`number`.
    #[must_use]
    pub fn get(&self, number: usize) -> u64 {
        match number {
            0..=3 => self.addresses[number],
            6 => self.status ^ STATUS_RESERVED,
            7 => self.control,
            _ => 0,
        }
    }

    /// Sets register DR`number` to `value` at a tracer's request. User memory ends at the address `end`.
    ///
    /// # Errors
    /// `EIO` for DR4 and DR5; `EINVAL` for an address outside user memory, and for a breakpoint that the processor does
    /// not support. These are breakpoints on I/O ports, misaligned ones, and those on execution of more than one byte.
    pub fn set(&mut self, number: usize, value: u64, end: u64) -> Result<(), Errno> {
        match number {
            0..=3 => {
                let mut changed = *self;
                changed.addresses[number] = value;
                if value >= end || !changed.is_valid() {
                    return Err(Errno::EINVAL);
                }
                *self = changed;
            }
            6 => self.status = value ^ STATUS_RESERVED,
            7 => {
                let control = value & !(CONTROL_RESERVED | CONTROL_DETECT);
                let changed = Self { control, ..*self };
                if !changed.is_valid() {
                    return Err(Errno::EINVAL);
                }
                *self = changed;
            }
            _ => return Err(Errno::EIO),
        }
        Ok(())
    }

    /// Returns the type of a breakpoint (0 execute, 1 write, 2 port, 3 access) and its length in bytes.
    fn kind(&self, slot: usize) -> (u64, u64) {
        let bits = self.control >> (16 + 4 * slot);
        let length = match bits >> 2 & 3 {
            0 => 1,
            1 => 2,
            2 => 8,
            _ => 4,
        };
        (bits & 3, length)
    }

    fn is_enabled(&self, slot: usize) -> bool {
        self.control >> (2 * slot) & 3 != 0
    }

    fn is_valid(&self) -> bool {
        (0..4).filter(|slot| self.is_enabled(*slot)).all(|slot| {
            let (kind, length) = self.kind(slot);
            let aligned = self.addresses[slot].is_multiple_of(length);
            kind != 2 && aligned && (kind != 0 || length == 1)
        })
    }

    /// Returns a bit mask of the enabled breakpoints that `status`, the value of DR6, reports as hit.
    #[must_use]
    pub fn hits(&self, status: u64) -> u64 {
        let enabled = (0..4).filter(|slot| self.is_enabled(*slot));
        let mask = enabled.fold(0, |mask, slot| mask | 1 << slot);
        status & STATUS_HITS & mask
    }

    /// Returns a copy of these registers in which the data breakpoints are disabled.
    #[must_use]
    pub fn without_data(&self) -> Self {
        let data = (0..4).filter(|slot| self.kind(*slot).0 != 0);
        let control = data.fold(self.control, |control, slot| control & !(3 << (2 * slot)));
        Self { control, ..*self }
    }

    /// Returns the address and the length in bytes of the breakpoint `slot`; `None` if it is not an enabled data
    /// breakpoint.
    #[must_use]
    pub fn data(&self, slot: usize) -> Option<(u64, usize)> {
        let (kind, length) = self.kind(slot);
        let data = self.is_enabled(slot) && kind != 0;
        data.then(|| (self.addresses[slot], length as usize))
    }

    /// Returns whether `status`, the value of DR6, reports that a breakpoint was hit.
    #[must_use]
    pub fn reports_hit(status: u64) -> bool {
        status & STATUS_HITS != 0
    }

    /// Returns whether the bit mask `hits` includes an execution breakpoint. The exception of such a breakpoint is
    /// raised before the instruction executes, so when the thread resumes, the instruction must not raise it again.
    #[must_use]
    pub fn stops_before(&self, hits: u64) -> bool {
        (0..4).any(|slot| hits >> slot & 1 != 0 && self.kind(slot).0 == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{DebugRegisters, Errno};

    const END: u64 = 1 << 47;

    #[test]
    fn breakpoints_that_the_processor_has() {
        for (address, control, expected) in [
            (0x1000, 0x1, Ok(())),
            (0x1001, 0x1, Ok(())),
            (0x1000, 0xd_0001, Ok(())),
            (0x1004, 0x9_0001, Err(Errno::EINVAL)),
            (0x1008, 0x9_0001, Ok(())),
            (0x1000, 0x2_0001, Err(Errno::EINVAL)),
            (0x1000, 0x4_0001, Err(Errno::EINVAL)),
            (0x1001, 0x2_0000, Ok(())),
        ] {
            let mut registers = DebugRegisters::default();
            registers.set(0, address, END).expect("a user address");
            assert_eq!(
                registers.set(7, control, END),
                expected,
                "{address:#x} {control:#x}"
            );
        }
        let mut registers = DebugRegisters::default();
        assert_eq!(registers.set(1, END, END), Err(Errno::EINVAL));
        assert_eq!(registers.set(4, 0, END), Err(Errno::EIO));
        assert_eq!(registers.set(7, !0, END), Ok(()));
        assert_eq!(registers.get(7), 0xffff_03ff);
    }

    #[test]
    fn only_enabled_breakpoints_are_hit() {
        let registers = DebugRegisters {
            control: 0xd_0004 | 0x1,
            ..DebugRegisters::default()
        };
        assert_eq!(registers.hits(0xf), 0b11);
        assert!(!registers.stops_before(0b01));
        assert!(registers.stops_before(0b10));
        assert!(registers.is_active());
        assert_eq!(registers.without_data().control, 0xd_0004);
        assert_eq!((registers.data(0), registers.data(1)), (Some((0, 4)), None));
        assert_eq!(registers.get(6), 0xffff_0ff0);
    }
}
