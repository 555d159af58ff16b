//! Restart of interrupted system calls.

use super::ActionFlags;
use crate::errno::Errno;

/// How an interrupted call continues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Restart {
    /// The call returns its result.
    Keep,
    /// The call returns `EINTR`.
    Interrupt,
    /// The thread executes the SYSCALL instruction again.
    Again,
    /// The thread executes `restart_syscall` instead of the call.
    Block,
}

/// Returns how a call that returned `errno` continues. `handler` contains the flags of the action whose handler runs;
/// `None` if no handler runs (`handle_signal` and `arch_do_signal_or_restart` of Linux 7.2,
/// `arch/x86/kernel/signal.c`).
pub fn restart_decision(errno: Errno, handler: Option<ActionFlags>) -> Restart {
    match (errno, handler) {
        (Errno::ERESTARTNOINTR, _) | (Errno::ERESTARTSYS | Errno::ERESTARTNOHAND, None) => {
            Restart::Again
        }
        (Errno::ERESTART_RESTARTBLOCK, None) => Restart::Block,
        (Errno::ERESTARTSYS, Some(flags)) if flags.contains(ActionFlags::RESTART) => Restart::Again,
        (Errno::ERESTARTSYS | Errno::ERESTARTNOHAND | Errno::ERESTART_RESTARTBLOCK, Some(_)) => {
            Restart::Interrupt
        }
        _ => Restart::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::{ActionFlags, Errno, Restart, restart_decision};

    #[test]
    fn restart_table() {
        let plain = Some(ActionFlags::empty());
        let restart = Some(ActionFlags::RESTART);
        for (errno, handler, expected) in [
            (Errno::EINTR, None, Restart::Keep),
            (Errno::EINTR, restart, Restart::Keep),
            (Errno::ERESTARTSYS, None, Restart::Again),
            (Errno::ERESTARTSYS, plain, Restart::Interrupt),
            (Errno::ERESTARTSYS, restart, Restart::Again),
            (Errno::ERESTARTNOHAND, None, Restart::Again),
            (Errno::ERESTARTNOHAND, restart, Restart::Interrupt),
            (Errno::ERESTARTNOINTR, plain, Restart::Again),
            (Errno::ERESTART_RESTARTBLOCK, None, Restart::Block),
            (Errno::ERESTART_RESTARTBLOCK, restart, Restart::Interrupt),
        ] {
            assert_eq!(
                restart_decision(errno, handler),
                expected,
                "{errno:?} {handler:?}"
            );
        }
    }
}
