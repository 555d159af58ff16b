//! Signals: their numbers, sets, causes and actions.

mod action;
mod actions;
mod alternate_stack;
mod info;
mod pending;
mod restart;
mod set;

pub use action::{Action, ActionFlags, DefaultAction, Handler, KernelAction, default_action};
pub use actions::Actions;
pub use alternate_stack::AlternateStack;
pub use info::{Detail, SignalInfo, code};
pub use pending::Pending;
pub use restart::{Restart, restart_decision};
pub use set::SignalSet;

use core::fmt;

/// A signal number, 1 to 64.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Signal(u8);

macro_rules! signals {
    ($($name:ident = $number:literal)*) => {
        impl Signal {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                pub const $name: Self = Self($number);
            )*
        }
        /// Names of the standard signals.
        const NAMES: &[(Signal, &str)] = &[$((Signal::$name, stringify!($name)),)*];
    };
}

signals! {
    SIGHUP = 1 SIGINT = 2 SIGQUIT = 3 SIGILL = 4 SIGTRAP = 5 SIGABRT = 6 SIGBUS = 7 SIGFPE = 8
    SIGKILL = 9 SIGUSR1 = 10 SIGSEGV = 11 SIGUSR2 = 12 SIGPIPE = 13 SIGALRM = 14 SIGTERM = 15
    SIGSTKFLT = 16 SIGCHLD = 17 SIGCONT = 18 SIGSTOP = 19 SIGTSTP = 20 SIGTTIN = 21 SIGTTOU = 22
    SIGURG = 23 SIGXCPU = 24 SIGXFSZ = 25 SIGVTALRM = 26 SIGPROF = 27 SIGWINCH = 28 SIGIO = 29
    SIGPWR = 30 SIGSYS = 31
}

impl Signal {
    /// Highest signal number.
    pub const MAX: u8 = 64;
    /// First real-time signal. Every instance of a real-time signal is queued.
    pub const REAL_TIME: u8 = 32;

    /// Returns the signal with the number `number`.
    pub const fn new(number: u64) -> Option<Self> {
        if number >= 1 && number <= Self::MAX as u64 {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Returns the number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns whether every instance of the signal is queued.
    pub const fn is_real_time(self) -> bool {
        self.0 >= Self::REAL_TIME
    }

    /// Returns the name of a standard signal.
    pub fn name(self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(signal, _)| *signal == self)
            .map(|(_, name)| *name)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "SIGRT_{}", self.0 - Self::REAL_TIME),
        }
    }
}
