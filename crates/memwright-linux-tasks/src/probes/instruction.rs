//! Decides which instructions can be executed at another address.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// The maximum length of an instruction in bytes.
pub(super) const LONGEST: usize = 15;

/// The reason why an instruction cannot have a probe.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// These bytes are not an instruction.
    Invalid,
    /// The instruction depends on its own address, or it traps. A copy at another address would have a different
    /// effect.
    Bound,
}

/// Returns the length of the first instruction in `code`, if it has the same effect at any address. Linux accepts more
/// instructions, because it rewrites or emulates some of the others (Linux 7.2 `arch/x86/kernel/uprobes.c`,
/// `arch_uprobe_analyze_insn`).
///
/// # Errors
/// One of [`Refused`].
pub(super) fn steppable_length(code: &[u8]) -> Result<usize, Refused> {
    let code = &code[..code.len().min(LONGEST)];
    let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return Err(Refused::Invalid);
    }
    if is_bound(&instruction) {
        return Err(Refused::Bound);
    }
    Ok(instruction.len())
}

/// Returns whether the instruction transfers control, traps, uses an address relative to its own, or exposes or changes
/// the trap flag.
fn is_bound(instruction: &Instruction) -> bool {
    instruction.flow_control() != FlowControl::Next
        || instruction.is_ip_rel_memory_operand()
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Hlt
                | Mnemonic::Pushf
                | Mnemonic::Pushfd
                | Mnemonic::Pushfq
                | Mnemonic::Popf
                | Mnemonic::Popfd
                | Mnemonic::Popfq
        )
}

#[cfg(test)]
mod tests {
    use super::{Refused, steppable_length};

    #[test]
    fn instructions_that_stand_anywhere() {
        for (code, expected) in [
            // push %rbp
            (&[0x55_u8][..], Ok(1)),
            // endbr64
            (&[0xf3, 0x0f, 0x1e, 0xfa], Ok(4)),
            // sub $0x18,%rsp
            (&[0x48, 0x83, 0xec, 0x18], Ok(4)),
            // add %al,(%rax)
            (&[0x00, 0x00, 0x00, 0x00], Ok(2)),
            // mov %fs:0x28,%rax
            (&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], Ok(9)),
            // lea 0x10(%rip),%rax
            (&[0x48, 0x8d, 0x05, 0x10, 0, 0, 0], Err(Refused::Bound)),
            // cmpl $0,0x10(%rip)
            (&[0x83, 0x3d, 0x10, 0, 0, 0, 0], Err(Refused::Bound)),
            // jmp, je, call, ret, syscall, int3, pushf, ud2, hlt
            (&[0xeb, 0x02], Err(Refused::Bound)),
            (&[0x74, 0x02], Err(Refused::Bound)),
            (&[0xe8, 0, 0, 0, 0], Err(Refused::Bound)),
            (&[0xff, 0xd0], Err(Refused::Bound)),
            (&[0xc3], Err(Refused::Bound)),
            (&[0x0f, 0x05], Err(Refused::Bound)),
            (&[0xcc], Err(Refused::Bound)),
            (&[0x9c], Err(Refused::Bound)),
            (&[0x0f, 0x0b], Err(Refused::Bound)),
            (&[0xf4], Err(Refused::Bound)),
            // popf, loop, xbegin, an indirect jump, iretq, sysret
            (&[0x9d], Err(Refused::Bound)),
            (&[0xe2, 0xfe], Err(Refused::Bound)),
            (&[0xc7, 0xf8, 0, 0, 0, 0], Err(Refused::Bound)),
            (&[0xff, 0xe0], Err(Refused::Bound)),
            (&[0x48, 0xcf], Err(Refused::Bound)),
            (&[0x48, 0x0f, 0x07], Err(Refused::Bound)),
            // vpaddd (%rip),%ymm0,%ymm1
            (&[0xc5, 0xfd, 0xfe, 0x0d, 0, 0, 0, 0], Err(Refused::Bound)),
            // vpaddd %ymm2,%ymm0,%ymm1
            (&[0xc5, 0xfd, 0xfe, 0xca], Ok(4)),
            // Only 64-bit code is decoded: pusha does not exist in it.
            (&[0x60], Err(Refused::Invalid)),
            // Sixteen bytes of prefixes are too long.
            (&[0x66; 16], Err(Refused::Invalid)),
            // A truncated instruction and an empty slice are invalid.
            (&[0x48, 0x83], Err(Refused::Invalid)),
            (&[], Err(Refused::Invalid)),
        ] {
            assert_eq!(steppable_length(code), expected, "{code:x?}");
        }
    }
}
