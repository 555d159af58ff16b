//! Maps processor exceptions to signals.

use crate::signal::{Signal, SignalInfo, code};

/// Returns the signal for an exception in user mode that is not a debug exception (`arch/x86/kernel/traps.c` of Linux
/// 7.2).
///
/// `instruction` is the address of the instruction. `floating_point` is the `si_code` for a floating-point exception:
/// see [`floating_point_code`].
pub fn signal_for(vector: u8, instruction: u64, floating_point: i32) -> SignalInfo {
    match vector {
        0 => SignalInfo::fault(Signal::SIGFPE, code::FPE_INTDIV, instruction),
        3 => SignalInfo::kernel(Signal::SIGTRAP),
        6 => SignalInfo::fault(Signal::SIGILL, code::ILL_ILLOPN, instruction),
        16 | 19 => SignalInfo::fault(Signal::SIGFPE, floating_point, instruction),
        17 => SignalInfo::fault(Signal::SIGBUS, code::BUS_ADRALN, 0),
        11 | 12 => SignalInfo::kernel(Signal::SIGBUS),
        // Overflow, bound range, general protection, and the exceptions that user mode cannot raise.
        _ => SignalInfo::kernel(Signal::SIGSEGV),
    }
}

/// Returns the `si_code` of a floating-point exception from its unmasked status bits (`fpu__exception_code` of Linux
/// 7.2). Bit 0 is an invalid operation, bit 2 a division by zero, bit 3 an overflow, bits 1 and 4 an underflow, and bit
/// 5 an inexact result.
pub fn floating_point_code(unmasked: u32) -> i32 {
    if unmasked & 0x01 != 0 {
        code::FPE_FLTINV
    } else if unmasked & 0x04 != 0 {
        code::FPE_FLTDIV
    } else if unmasked & 0x08 != 0 {
        code::FPE_FLTOVF
    } else if unmasked & 0x12 != 0 {
        code::FPE_FLTUND
    } else if unmasked & 0x20 != 0 {
        code::FPE_FLTRES
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::{code, floating_point_code, signal_for};
    use crate::signal::Signal;

    #[test]
    fn exceptions_become_signals() {
        for (vector, signal, expected) in [
            (0, Signal::SIGFPE, code::FPE_INTDIV),
            (3, Signal::SIGTRAP, code::SI_KERNEL),
            (6, Signal::SIGILL, code::ILL_ILLOPN),
            (12, Signal::SIGBUS, code::SI_KERNEL),
            (13, Signal::SIGSEGV, code::SI_KERNEL),
            (17, Signal::SIGBUS, code::BUS_ADRALN),
            (19, Signal::SIGFPE, code::FPE_FLTDIV),
        ] {
            let info = signal_for(vector, 0x1000, code::FPE_FLTDIV);
            assert_eq!(
                (info.signal, info.code),
                (signal, expected),
                "vector {vector}"
            );
        }
    }

    #[test]
    fn invalid_comes_before_divide() {
        assert_eq!(floating_point_code(0x05), code::FPE_FLTINV);
        assert_eq!(floating_point_code(0x24), code::FPE_FLTDIV);
        assert_eq!(floating_point_code(0x02), code::FPE_FLTUND);
        assert_eq!(floating_point_code(0), 0);
    }
}
