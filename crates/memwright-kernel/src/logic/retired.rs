//! Corrects the count of a program's instructions. The clock is read some instructions after the entry from user mode.
//! This module determines how many of the instructions counted until then do not belong to the program.
//!
//! QEMU adds the instructions of a block to the count when it enters the block. If an instruction faults during its
//! execution, QEMU subtracts that instruction again. For an instruction that always faults, QEMU translates only the
//! raising of the exception (`gen_exception` of target/i386/tcg/translate.c). Such an instruction stays in the count
//! although it did not retire.

/// Debug exception. Its stub takes the longer path of the exceptions that can occur while the user's GS base is loaded.
const DEBUG: u8 = 1;
/// Invalid opcode.
const INVALID_OPCODE: u8 = 6;
/// General protection.
const GENERAL_PROTECTION: u8 = 13;
/// Length of the longest instruction in bytes.
pub const LONGEST: usize = 15;

/// Returns how many more instructions were counted at this entry than at a page fault's entry. None of these additional
/// instructions belongs to the program.
///
/// `code` returns as many bytes as can be read at the address of the exception, and their number. It is called only for
/// general protection faults. QEMU raises these during the execution of an instruction, or without executing it.
pub fn surplus(vector: u8, code: impl FnOnce() -> ([u8; LONGEST], usize)) -> u64 {
    match vector {
        GENERAL_PROTECTION => {
            let (bytes, length) = code();
            u64::from(can_only_fault(bytes.get(..length).unwrap_or(&bytes)))
        }
        // The processor pushes an error code, as for a page fault, so there is no surplus.
        8 | 10 | 11 | 12 | 14 | 17 | 21 | 29 | 30 => 0,
        // The stub pushes a zero instead of an error code.
        INVALID_OPCODE => 2,
        DEBUG => 3,
        _ => 1,
    }
}

/// Returns whether QEMU raises a general protection fault for a user-mode instruction without executing any part of it.
pub fn can_only_fault(code: &[u8]) -> bool {
    let is_prefix = |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 | 0x40..=0x4f);
    let prefixes = code.iter().take_while(is_prefix).count();
    // All bytes are prefixes, so the instruction exceeds the maximum length.
    let Some((&opcode, rest)) = code[prefixes..].split_first() else {
        return code.len() == LONGEST;
    };
    match (opcode, rest) {
        // INT n with a vector that user mode may not raise, HLT, CLI, STI; CLTS, INVD, WBINVD, MOV to and from control
        // and debug registers, WRMSR, RDMSR.
        (0xcd | 0xf4 | 0xfa | 0xfb, _)
        | (0x0f, [0x06 | 0x08 | 0x09 | 0x20..=0x23 | 0x30 | 0x32, ..]) => true,
        // LLDT, LTR; LGDT, LIDT, LMSW, INVLPG and the other CPL 0 instructions of the group.
        (0x0f, [0x00, modrm, ..]) => matches!(modrm >> 3 & 7, 2 | 3),
        (0x0f, [0x01, modrm, ..]) => match modrm >> 3 & 7 {
            // Of the register forms in this group, only XSETBV is privileged.
            2 => *modrm < 0xc0 || *modrm == 0xd1,
            3 => *modrm < 0xc0,
            6 => true,
            // Of the register forms in this group, only SWAPGS is privileged.
            7 => *modrm < 0xc0 || *modrm == 0xf8,
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(code: &[u8]) -> ([u8; LONGEST], usize) {
        let mut bytes = [0; LONGEST];
        bytes[..code.len()].copy_from_slice(code);
        (bytes, code.len())
    }

    #[test]
    fn entries_are_told_apart_by_vector() {
        for (vector, expected) in [
            (0, 1),
            (1, 3),
            (3, 1),
            (6, 2),
            (11, 0),
            (12, 0),
            (14, 0),
            (16, 1),
            (17, 0),
            (19, 1),
            (0x20, 1),
            (0x23, 1),
            (0xff, 1),
        ] {
            let found = surplus(vector, || unreachable!("only for general protection"));
            assert_eq!(found, expected, "vector {vector}");
        }
    }

    #[test]
    fn general_protection_is_told_apart_by_opcode() {
        for (code, expected) in [
            (&[0xfa][..], 1),
            (&[0xfb], 1),
            (&[0xf4], 1),
            (&[0xcd, 0x20], 1),
            (&[0x66, 0xf4], 1),
            (&[0x0f, 0x06], 1),
            (&[0x0f, 0x09], 1),
            (&[0x0f, 0x20, 0xd8], 1),
            (&[0x0f, 0x22, 0xd8], 1),
            (&[0x0f, 0x23, 0xf8], 1),
            (&[0x0f, 0x30], 1),
            (&[0x0f, 0x32], 1),
            (&[0x0f, 0x00, 0xd0], 1),
            (&[0x0f, 0x00, 0xd8], 1),
            (&[0x0f, 0x01, 0x10], 1),
            (&[0x0f, 0x01, 0x18], 1),
            (&[0x0f, 0x01, 0xd1], 1),
            (&[0x0f, 0x01, 0xf0], 1),
            (&[0x0f, 0x01, 0x38], 1),
            (&[0x0f, 0x01, 0xf8], 1),
            (&[0x41, 0x0f, 0x20, 0xc0], 1),
            (&[0x66; LONGEST], 1),
            // IN, OUT and RDPMC call a helper of QEMU, which subtracts the instruction from the count.
            (&[0xe4, 0x60], 0),
            (&[0xee], 0),
            (&[0x0f, 0x33], 0),
            // A segment load, an access to a non-canonical address, XGETBV of an unknown register.
            (&[0x8e, 0xd8], 0),
            (&[0x48, 0x8b, 0x00], 0),
            (&[0x0f, 0x01, 0xd0], 0),
            (&[0x0f, 0x01, 0x00], 0),
            (&[0x66, 0x66], 0),
            (&[0x0f], 0),
            // The instruction address itself is not canonical, so no instruction was executed.
            (&[], 0),
        ] {
            assert_eq!(surplus(13, || padded(code)), expected, "{code:x?}");
        }
    }
}
