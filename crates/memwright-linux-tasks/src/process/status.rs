//! Exit status and state changes, as reported to parents.

use memwright_linux_abi::signal::{Signal, code};

/// How a process exited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExitStatus {
    /// The process exited with the low byte of this code.
    Exited(i32),
    /// This signal killed the process. Core dumps are not supported, so the status never has the core flag.
    Killed(Signal),
}

/// A state change of a child, for which the parent can wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The child exited.
    Ended(ExitStatus),
    /// A signal stopped the child.
    Stopped(Signal),
    /// The child continued after a stop.
    Continued,
    /// The child is in a ptrace stop.
    Trapped {
        /// The signal, with the number of an event in the bits from 8 on.
        code: u32,
        /// True if the thread stopped with its process, or because the tracer interrupted it.
        by_stop: bool,
    },
}

impl Change {
    /// Returns the status word of `wait4`.
    pub fn wait_status(self) -> i32 {
        match self {
            Self::Ended(ExitStatus::Exited(code)) => (code & 0xff) << 8,
            Self::Ended(ExitStatus::Killed(signal)) => i32::from(signal.number()),
            Self::Stopped(signal) => i32::from(signal.number()) << 8 | 0x7f,
            Self::Trapped { code, .. } => (code as i32) << 8 | 0x7f,
            Self::Continued => 0xffff,
        }
    }

    /// Returns `si_code` and `si_status` for `waitid`.
    pub fn signal_fields(self) -> (i32, i32) {
        match self {
            Self::Ended(ExitStatus::Exited(status)) => (code::CLD_EXITED, status & 0xff),
            Self::Ended(ExitStatus::Killed(signal)) => (code::CLD_KILLED, signal.number().into()),
            Self::Stopped(signal) => (code::CLD_STOPPED, signal.number().into()),
            Self::Continued => (code::CLD_CONTINUED, Signal::SIGCONT.number().into()),
            Self::Trapped { code: shown, .. } => (code::CLD_TRAPPED, shown as i32),
        }
    }

    /// Returns `si_code` and `si_status` for SIGCHLD.
    pub fn notice_fields(self) -> (i32, i32) {
        match self {
            Self::Trapped {
                code: shown,
                by_stop,
            } => {
                let kind = if by_stop {
                    code::CLD_STOPPED
                } else {
                    code::CLD_TRAPPED
                };
                (kind, (shown & 0x7f) as i32)
            }
            Self::Ended(_) | Self::Stopped(_) | Self::Continued => self.signal_fields(),
        }
    }
}

/// The state of a process, as seen by its parent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Life {
    /// The process is alive. The field is the last state change that the parent has not waited for.
    Alive(Option<Change>),
    /// The process has exited and has not been reaped.
    Zombie(ExitStatus),
}

#[cfg(test)]
mod tests {
    use super::{Change, ExitStatus};
    use memwright_linux_abi::signal::Signal;

    #[test]
    fn status_words() {
        let trapped = |code| Change::Trapped {
            code,
            by_stop: false,
        };
        for (change, status, fields) in [
            (Change::Ended(ExitStatus::Exited(7)), 0x0700, (1, 7)),
            (Change::Ended(ExitStatus::Exited(-1)), 0xff00, (1, 255)),
            (
                Change::Ended(ExitStatus::Killed(Signal::SIGSEGV)),
                11,
                (2, 11),
            ),
            (Change::Stopped(Signal::SIGTSTP), 0x147f, (5, 20)),
            (Change::Continued, 0xffff, (6, 18)),
            (trapped(5), 0x057f, (4, 5)),
            (trapped(0x305), 0x3057f, (4, 0x305)),
        ] {
            assert_eq!(change.wait_status(), status, "{change:?}");
            assert_eq!(change.signal_fields(), fields, "{change:?}");
        }
    }
}
