//! The action of a process for a signal (its disposition).

use super::{Signal, SignalSet};
use memwright_linux_base::flags;

/// The reaction to a signal: `sa_handler`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Handler {
    /// The default action is taken.
    #[default]
    Default,
    /// The signal is discarded.
    Ignore,
    /// The function of the program at this address is called.
    Function(u64),
}

flags! {
    /// `sa_flags` of `asm-generic/signal-defs.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct ActionFlags: u64 {
        /// No SIGCHLD is sent when a child stops.
        const NOCLDSTOP = 1;
        /// Children do not become zombies when they exit.
        const NOCLDWAIT = 2;
        /// The handler is called with three arguments.
        const SIGINFO = 4;
        /// `sa_restorer` is valid.
        const RESTORER = 0x0400_0000;
        /// The handler runs on the alternate stack.
        const ONSTACK = 0x0800_0000;
        /// Calls that the signal interrupts are restarted.
        const RESTART = 0x1000_0000;
        /// The signal is not blocked while its handler runs.
        const NODEFER = 0x4000_0000;
        /// The action is reset to the default when the handler starts.
        const RESETHAND = 0x8000_0000;
        const _ = !0;
    }
}

/// `struct sigaction` of the kernel interface.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Action {
    /// The handler.
    pub handler: Handler,
    /// Flags of the handler.
    pub flags: ActionFlags,
    /// Return address of the handler.
    pub restorer: u64,
    /// Signals that are blocked while the handler runs.
    pub mask: SignalSet,
}

crate::abi_struct! {
    /// `struct sigaction` as passed by x86-64 system calls.
    pub struct KernelAction {
        /// `SIG_DFL` (0), `SIG_IGN` (1) or an address.
        pub handler: u64,
        /// `sa_flags`.
        pub flags: u64,
        /// `sa_restorer`.
        pub restorer: u64,
        /// `sa_mask`.
        pub mask: u64,
    }
}

impl From<KernelAction> for Action {
    fn from(action: KernelAction) -> Self {
        Self {
            handler: match action.handler {
                0 => Handler::Default,
                1 => Handler::Ignore,
                address => Handler::Function(address),
            },
            flags: ActionFlags::from_bits_retain(action.flags),
            restorer: action.restorer,
            mask: SignalSet(action.mask).minus(SignalSet::UNBLOCKABLE),
        }
    }
}

impl From<Action> for KernelAction {
    fn from(action: Action) -> Self {
        Self {
            handler: match action.handler {
                Handler::Default => 0,
                Handler::Ignore => 1,
                Handler::Function(address) => address,
            },
            flags: action.flags.bits(),
            restorer: action.restorer,
            mask: action.mask.0,
        }
    }
}

/// The action if there is no handler (`signal(7)`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DefaultAction {
    /// The process is killed.
    Terminate,
    /// The process is killed. On Linux it would also dump core; here, this action has the same effect as `Terminate`.
    Core,
    /// The signal has no effect.
    Ignore,
    /// The process stops.
    Stop,
    /// A stopped process continues.
    Continue,
}

/// Returns the default action of a signal.
pub fn default_action(signal: Signal) -> DefaultAction {
    match signal {
        Signal::SIGCHLD | Signal::SIGURG | Signal::SIGWINCH => DefaultAction::Ignore,
        Signal::SIGCONT => DefaultAction::Continue,
        Signal::SIGSTOP | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => {
            DefaultAction::Stop
        }
        Signal::SIGQUIT
        | Signal::SIGILL
        | Signal::SIGTRAP
        | Signal::SIGABRT
        | Signal::SIGBUS
        | Signal::SIGFPE
        | Signal::SIGSEGV
        | Signal::SIGXCPU
        | Signal::SIGXFSZ
        | Signal::SIGSYS => DefaultAction::Core,
        _ => DefaultAction::Terminate,
    }
}

impl Action {
    /// Returns whether a signal with this action is discarded when it is sent.
    pub fn ignores(&self, signal: Signal) -> bool {
        match self.handler {
            Handler::Ignore => true,
            Handler::Function(_) => false,
            Handler::Default => match default_action(signal) {
                // SIGCONT continues the process when it is sent, so its delivery has no effect.
                DefaultAction::Ignore | DefaultAction::Continue => true,
                DefaultAction::Terminate | DefaultAction::Core | DefaultAction::Stop => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, ActionFlags, DefaultAction, Handler, KernelAction, default_action};
    use crate::signal::{Signal, SignalSet};

    #[test]
    fn actions_survive_user_memory() {
        let kernel = KernelAction {
            handler: 0x40_1000,
            flags: 0x1400_0004,
            restorer: 7,
            mask: !0,
        };
        let action = Action::from(kernel);
        assert_eq!(action.handler, Handler::Function(0x40_1000));
        let expected = ActionFlags::RESTART | ActionFlags::RESTORER | ActionFlags::SIGINFO;
        assert_eq!(action.flags, expected);
        assert!(!action.mask.contains(Signal::SIGKILL));
        let mask = SignalSet(!0).minus(SignalSet::UNBLOCKABLE).0;
        assert_eq!(KernelAction::from(action), KernelAction { mask, ..kernel });
    }

    #[test]
    fn default_actions() {
        for (signal, expected) in [
            (Signal::SIGTERM, DefaultAction::Terminate),
            (Signal::SIGSEGV, DefaultAction::Core),
            (Signal::SIGCHLD, DefaultAction::Ignore),
            (Signal::SIGTSTP, DefaultAction::Stop),
            (Signal::SIGCONT, DefaultAction::Continue),
        ] {
            assert_eq!(default_action(signal), expected);
        }
        let real_time = Signal::new(40).expect("a signal");
        assert_eq!(default_action(real_time), DefaultAction::Terminate);
        assert!(Action::default().ignores(Signal::SIGCHLD));
        assert!(!Action::default().ignores(Signal::SIGINT));
    }
}
