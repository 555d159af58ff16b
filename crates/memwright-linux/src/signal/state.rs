//! The signal state of a process and of its threads, under one lock.

use super::{Action, Handler, Pending, Signal, SignalInfo, SignalSet};
use crate::process::{ExitStatus, Thread, Work};
use alloc::{sync::Arc, vec::Vec};

crate::abi_struct! {
    /// `stack_t` of `asm-generic/signal.h`.
    pub struct AlternateStack {
        /// Lowest address.
        pub base: u64,
        /// `SS_ONSTACK`, `SS_DISABLE`, `SS_AUTODISARM`.
        pub flags: u32,
        /// Padding.
        pub padding: u32,
        /// Bytes.
        pub size: u64,
    }
}

impl AlternateStack {
    /// `SS_ONSTACK`.
    pub const ONSTACK: u32 = 1;
    /// `SS_DISABLE`.
    pub const DISABLE: u32 = 2;
    /// `SS_AUTODISARM` of `asm-generic/signal.h`: disabled while a handler runs on it.
    pub const AUTODISARM: u32 = 1 << 31;

    /// The stack pointer lies on this stack. With `SS_AUTODISARM` it never does.
    pub fn holds(&self, stack_pointer: u64) -> bool {
        self.flags & Self::AUTODISARM == 0
            && stack_pointer > self.base
            && stack_pointer - self.base <= self.size
    }

    /// What `sigaltstack` reports for `ss_flags`.
    pub fn state(&self, stack_pointer: u64) -> u32 {
        if self.size == 0 {
            Self::DISABLE
        } else if self.holds(stack_pointer) {
            Self::ONSTACK
        } else {
            0
        }
    }
}

/// The signal state of one thread.
#[derive(Debug, Default)]
pub struct ThreadSignals {
    /// Signals that wait until they are unblocked.
    pub blocked: SignalSet,
    /// The mask to return to when the current call is over (`rt_sigsuspend`, `ppoll`).
    pub saved_mask: Option<SignalSet>,
    /// Signals sent to this thread alone.
    pub pending: Pending,
    /// Signals that `rt_sigtimedwait` waits for, though blocked.
    pub waited: SignalSet,
    /// The alternate stack.
    pub alternate_stack: AlternateStack,
}

/// A stop of the whole process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Stop {
    /// It runs.
    #[default]
    Running,
    /// A signal stopped it.
    Stopped(Signal),
}

/// The signal state of a process.
pub struct Signals {
    /// What is done about each signal; index 0 is signal 1.
    pub actions: [Action; Signal::MAX as usize],
    /// Signals sent to the process.
    pub pending: Pending,
    /// Its threads, oldest first.
    pub threads: Vec<(Arc<Thread>, ThreadSignals)>,
    /// The whole process is ending with this status.
    pub group_exit: Option<ExitStatus>,
    /// Whether it is stopped.
    pub stop: Stop,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            actions: [Action::default(); Signal::MAX as usize],
            pending: Pending::default(),
            threads: Vec::new(),
            group_exit: None,
            stop: Stop::Running,
        }
    }
}

impl Signals {
    /// The action for a signal.
    pub fn action(&self, signal: Signal) -> &Action {
        &self.actions[signal.number() as usize - 1]
    }

    /// The action for a signal, to be changed.
    pub fn action_mut(&mut self, signal: Signal) -> &mut Action {
        &mut self.actions[signal.number() as usize - 1]
    }

    /// The state of a thread of this process.
    ///
    /// # Panics
    /// When the thread has left the process.
    pub fn thread(&mut self, thread: &Thread) -> &mut ThreadSignals {
        let found = self
            .threads
            .iter_mut()
            .find(|(other, _)| other.id == thread.id);
        &mut found.expect("a thread has signal state while it lives").1
    }

    /// Recomputes whether a thread has to look at its signals before it returns to user mode.
    pub fn recalculate(&mut self, thread: &Thread) {
        let shared = self.pending.set();
        let busy = self.group_exit.is_some() || self.stop != Stop::Running;
        let state = self.thread(thread);
        let deliverable = state.pending.set().union(shared).minus(state.blocked);
        let wanted = busy || !deliverable.is_empty();
        thread.set_work(Work::SIGNAL, wanted);
    }

    /// Recomputes it for every thread.
    pub fn recalculate_all(&mut self) {
        for index in 0..self.threads.len() {
            let thread = self.threads[index].0.clone();
            self.recalculate(&thread);
        }
    }

    /// Replaces a thread's mask.
    pub fn set_blocked(&mut self, thread: &Thread, blocked: SignalSet) {
        self.thread(thread).blocked = blocked.minus(SignalSet::UNBLOCKABLE);
        self.recalculate(thread);
    }

    /// Takes the next signal for a thread that is not in `blocked`: its own before shared ones.
    pub fn take(&mut self, thread: &Thread, blocked: SignalSet) -> Option<SignalInfo> {
        let own = self.thread(thread).pending.take(blocked);
        own.or_else(|| self.pending.take(blocked))
    }

    /// A signal may be thrown away when it is sent: ignored and nobody waits for it.
    pub fn ignored(&self, signal: Signal) -> bool {
        // A blocked signal stays: its action may change before it is unblocked.
        let kept = |state: &ThreadSignals| {
            state.blocked.contains(signal)
                || state.waited.contains(signal)
                || state.saved_mask.is_some_and(|mask| mask.contains(signal))
        };
        self.action(signal).ignores(signal) && !self.threads.iter().any(|(_, state)| kept(state))
    }

    /// What exec leaves of the actions: handlers become the default, ignored signals stay.
    pub fn reset_for_exec(&mut self) {
        for action in &mut self.actions {
            let handler = match action.handler {
                Handler::Ignore => Handler::Ignore,
                Handler::Default | Handler::Function(_) => Handler::Default,
            };
            *action = Action {
                handler,
                ..Action::default()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AlternateStack;

    #[test]
    fn the_stack_grows_down_from_its_top() {
        let stack = AlternateStack {
            base: 0x1000,
            flags: 0,
            padding: 0,
            size: 0x2000,
        };
        assert!(!stack.holds(0x1000));
        assert!(stack.holds(0x1001));
        assert!(stack.holds(0x3000));
        assert!(!stack.holds(0x3001));
        assert_eq!(stack.state(0x2000), AlternateStack::ONSTACK);
        assert_eq!(stack.state(0x4000), 0);
        assert_eq!(
            AlternateStack::default().state(0x2000),
            AlternateStack::DISABLE
        );
    }
}
