//! Decides which instructions can be executed at another address.

use yaxpeax_arch::LengthedInstruction;
use yaxpeax_x86::long_mode::{InstDecoder, Opcode, Operand, RegSpec};

/// The longest instruction in bytes.
pub(super) const LONGEST: usize = 15;

/// The reason why an instruction cannot have a probe.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// These bytes are not an instruction.
    Invalid,
    /// The instruction depends on its own address, or it traps. At another address its effect would differ.
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
    let instruction = InstDecoder::default()
        .decode_slice(code)
        .map_err(|_| Refused::Invalid)?;
    let operands = (0..instruction.operand_count()).map(|index| instruction.operand(index));
    let bound =
        is_bound(instruction.opcode()) || operands.into_iter().any(|operand| is_relative(&operand));
    if bound {
        return Err(Refused::Bound);
    }
    Ok(instruction.len().to_const() as usize)
}

/// Returns whether the instruction transfers control, traps, or exposes or changes the trap flag.
fn is_bound(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::CALL
            | Opcode::CALLF
            | Opcode::JMP
            | Opcode::JMPF
            | Opcode::JMPE
            | Opcode::JO
            | Opcode::JNO
            | Opcode::JB
            | Opcode::JNB
            | Opcode::JZ
            | Opcode::JNZ
            | Opcode::JA
            | Opcode::JNA
            | Opcode::JS
            | Opcode::JNS
            | Opcode::JP
            | Opcode::JNP
            | Opcode::JL
            | Opcode::JGE
            | Opcode::JLE
            | Opcode::JG
            | Opcode::JRCXZ
            | Opcode::LOOP
            | Opcode::LOOPZ
            | Opcode::LOOPNZ
            | Opcode::RETURN
            | Opcode::RETF
            | Opcode::IRET
            | Opcode::IRETD
            | Opcode::IRETQ
            | Opcode::INT
            | Opcode::INTO
            | Opcode::SYSCALL
            | Opcode::SYSENTER
            | Opcode::SYSRET
            | Opcode::SYSEXIT
            | Opcode::XBEGIN
            | Opcode::XABORT
            | Opcode::PUSHF
            | Opcode::POPF
            | Opcode::UD0
            | Opcode::UD1
            | Opcode::UD2
            | Opcode::HLT
    )
}

/// Returns whether the operand is an address relative to the instruction pointer.
fn is_relative(operand: &Operand) -> bool {
    let is_pointer = |reg: &RegSpec| *reg == RegSpec::rip() || *reg == RegSpec::eip();
    match operand {
        Operand::MemDeref { base }
        | Operand::Disp { base, .. }
        | Operand::MemDerefMasked { base, .. }
        | Operand::DispMasked { base, .. } => is_pointer(base),
        _ => false,
    }
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
            // jmp, je, call, ret, syscall, int3, pushf, ud2
            (&[0xeb, 0x02], Err(Refused::Bound)),
            (&[0x74, 0x02], Err(Refused::Bound)),
            (&[0xe8, 0, 0, 0, 0], Err(Refused::Bound)),
            (&[0xff, 0xd0], Err(Refused::Bound)),
            (&[0xc3], Err(Refused::Bound)),
            (&[0x0f, 0x05], Err(Refused::Bound)),
            (&[0xcc], Err(Refused::Bound)),
            (&[0x9c], Err(Refused::Bound)),
            (&[0x0f, 0x0b], Err(Refused::Bound)),
            // A truncated instruction and an empty slice are invalid.
            (&[0x48, 0x83], Err(Refused::Invalid)),
            (&[], Err(Refused::Invalid)),
        ] {
            assert_eq!(steppable_length(code), expected, "{code:x?}");
        }
    }
}
