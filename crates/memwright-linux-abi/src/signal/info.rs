//! `siginfo_t`.

use super::Signal;
use crate::abi::Plain;
use memwright_table::PageSize;

/// `si_code` values of `asm-generic/siginfo.h`.
pub mod code {
    /// Sent by `kill`.
    pub const SI_USER: i32 = 0;
    /// Sent by the kernel.
    pub const SI_KERNEL: i32 = 0x80;
    /// Sent by `tkill` or `tgkill`.
    pub const SI_TKILL: i32 = -6;
    /// Sent by a POSIX timer.
    pub const SI_TIMER: i32 = -2;
    /// Integer divide by zero.
    pub const FPE_INTDIV: i32 = 1;
    /// Integer overflow.
    pub const FPE_INTOVF: i32 = 2;
    /// Floating-point divide by zero.
    pub const FPE_FLTDIV: i32 = 3;
    /// Floating-point overflow.
    pub const FPE_FLTOVF: i32 = 4;
    /// Floating-point underflow.
    pub const FPE_FLTUND: i32 = 5;
    /// Floating-point inexact result.
    pub const FPE_FLTRES: i32 = 6;
    /// Floating-point invalid operation.
    pub const FPE_FLTINV: i32 = 7;
    /// Illegal operand.
    pub const ILL_ILLOPN: i32 = 2;
    /// No area at the address.
    pub const SEGV_MAPERR: i32 = 1;
    /// The area does not permit the access.
    pub const SEGV_ACCERR: i32 = 2;
    /// The protection key denies the access.
    pub const SEGV_PKUERR: i32 = 4;
    /// Invalid address alignment.
    pub const BUS_ADRALN: i32 = 1;
    /// No page at the address.
    pub const BUS_ADRERR: i32 = 2;
    /// The access hit a hardware memory error.
    pub const BUS_MCEERR_AR: i32 = 4;
    /// Breakpoint.
    pub const TRAP_BRKPT: i32 = 1;
    /// Single step.
    pub const TRAP_TRACE: i32 = 2;
    /// Hardware breakpoint.
    pub const TRAP_HWBKPT: i32 = 4;
    /// The child exited.
    pub const CLD_EXITED: i32 = 1;
    /// The child was killed.
    pub const CLD_KILLED: i32 = 2;
    /// The child was killed and dumped core.
    pub const CLD_DUMPED: i32 = 3;
    /// The child is in a ptrace stop.
    pub const CLD_TRAPPED: i32 = 4;
    /// The child stopped.
    pub const CLD_STOPPED: i32 = 5;
    /// The stopped child continued.
    pub const CLD_CONTINUED: i32 = 6;
}

/// The part of `siginfo_t` that depends on the signal and its cause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Detail {
    /// The signal has no further data.
    None,
    /// Sent by a process.
    Sender {
        /// The process ID of the sender.
        process: u32,
        /// The user ID of the sender.
        user: u32,
    },
    /// An instruction faulted at this address.
    Fault {
        /// The address that was accessed, or that of the instruction.
        address: u64,
    },
    /// The protection key of a page denied an access.
    Key {
        /// The address accessed.
        address: u64,
        /// The protection key of the page.
        key: u8,
    },
    /// The access hit a poisoned page.
    Poison {
        /// The address accessed.
        address: u64,
        /// The size of the page.
        size: PageSize,
    },
    /// A child changed state.
    Child {
        /// The process ID of the child.
        process: u32,
        /// The user ID of the child.
        user: u32,
        /// The exit code or the signal number.
        status: i32,
        /// User time in clock ticks.
        user_ticks: i64,
        /// Kernel time in clock ticks.
        system_ticks: i64,
    },
    /// A POSIX timer expired.
    Timer {
        /// The ID of the timer.
        timer: i32,
        /// `si_overrun`: the number of expirations that the signal reports, minus one. It is 0 until a thread dequeues
        /// the signal.
        overrun: i32,
        /// The value that the program chose for the timer.
        value: u64,
    },
    /// The bytes of the `siginfo_t` from offset 16 on, as passed to `rt_sigqueueinfo`.
    Raw([u8; 112]),
}

/// A signal and its cause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SignalInfo {
    /// The signal.
    pub signal: Signal,
    /// `si_code`.
    pub code: i32,
    /// `si_errno`.
    pub errno: i32,
    /// The part that depends on the signal.
    pub detail: Detail,
}

impl SignalInfo {
    /// Size of `siginfo_t` in bytes.
    pub const SIZE: usize = 128;

    /// Creates a signal from the kernel without further data.
    pub const fn kernel(signal: Signal) -> Self {
        Self {
            signal,
            code: code::SI_KERNEL,
            errno: 0,
            detail: Detail::None,
        }
    }

    /// Returns whether a POSIX timer sent the signal.
    #[must_use]
    pub const fn is_of_timer(&self) -> bool {
        matches!(self.detail, Detail::Timer { .. })
    }

    /// Creates the signal for a fault of an instruction of the thread.
    pub const fn fault(signal: Signal, code: i32, address: u64) -> Self {
        Self {
            signal,
            code,
            errno: 0,
            detail: Detail::Fault { address },
        }
    }

    /// Creates the signal for an access that the protection key of the page denied.
    pub const fn key(address: u64, key: u8) -> Self {
        Self {
            signal: Signal::SIGSEGV,
            code: code::SEGV_PKUERR,
            errno: 0,
            detail: Detail::Key { address, key },
        }
    }

    /// Creates the signal for an access to a poisoned page.
    pub const fn poison(address: u64, size: PageSize) -> Self {
        Self {
            signal: Signal::SIGBUS,
            code: code::BUS_MCEERR_AR,
            errno: 0,
            detail: Detail::Poison { address, size },
        }
    }

    /// Encodes the value as a `siginfo_t` in user memory.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        i32::from(self.signal.number()).to_bytes(&mut bytes[0..4]);
        self.errno.to_bytes(&mut bytes[4..8]);
        self.code.to_bytes(&mut bytes[8..12]);
        match self.detail {
            Detail::None => {}
            Detail::Sender { process, user } => {
                process.to_bytes(&mut bytes[16..20]);
                user.to_bytes(&mut bytes[20..24]);
            }
            Detail::Fault { address } => address.to_bytes(&mut bytes[16..24]),
            Detail::Key { address, key } => {
                address.to_bytes(&mut bytes[16..24]);
                u32::from(key).to_bytes(&mut bytes[32..36]);
            }
            Detail::Poison { address, size } => {
                address.to_bytes(&mut bytes[16..24]);
                // `si_addr_lsb`: the binary logarithm of the page size.
                let shift = size.bytes().trailing_zeros() as u16;
                shift.to_bytes(&mut bytes[24..26]);
            }
            Detail::Child {
                process,
                user,
                status,
                user_ticks,
                system_ticks,
            } => {
                process.to_bytes(&mut bytes[16..20]);
                user.to_bytes(&mut bytes[20..24]);
                status.to_bytes(&mut bytes[24..28]);
                user_ticks.to_bytes(&mut bytes[32..40]);
                system_ticks.to_bytes(&mut bytes[40..48]);
            }
            Detail::Timer {
                timer,
                overrun,
                value,
            } => {
                timer.to_bytes(&mut bytes[16..20]);
                overrun.to_bytes(&mut bytes[20..24]);
                value.to_bytes(&mut bytes[24..32]);
            }
            Detail::Raw(rest) => bytes[16..].copy_from_slice(&rest),
        }
        bytes
    }

    /// Decodes the `siginfo_t` that a process passed to `rt_sigqueueinfo`. `signal` replaces its `si_signo`.
    pub fn from_user(signal: Signal, bytes: &[u8; Self::SIZE]) -> Self {
        let mut rest = [0; 112];
        rest.copy_from_slice(&bytes[16..]);
        Self {
            signal,
            code: i32::from_bytes(&bytes[8..12]),
            errno: i32::from_bytes(&bytes[4..8]),
            detail: Detail::Raw(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Detail, Signal, SignalInfo, code};

    #[test]
    fn fields_stand_where_the_interface_has_them() {
        let info = SignalInfo::fault(Signal::SIGSEGV, code::SEGV_ACCERR, 0x1234_5678_9abc);
        let bytes = info.to_bytes();
        assert_eq!(bytes[0..4], [11, 0, 0, 0]);
        assert_eq!(bytes[8..12], [2, 0, 0, 0]);
        assert_eq!(bytes[16..24], 0x1234_5678_9abc_u64.to_le_bytes());
        let detail = Detail::Child {
            process: 3,
            user: 0,
            status: 7,
            user_ticks: 1,
            system_ticks: 2,
        };
        let info = SignalInfo {
            signal: Signal::SIGCHLD,
            code: code::CLD_EXITED,
            errno: 0,
            detail,
        };
        let bytes = info.to_bytes();
        assert_eq!((bytes[16], bytes[24], bytes[32], bytes[40]), (3, 7, 1, 2));
        let again = SignalInfo::from_user(Signal::SIGCHLD, &bytes);
        assert_eq!(again.to_bytes(), bytes);
    }
}
