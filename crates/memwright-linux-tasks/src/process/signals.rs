//! The signal state of a process and of its threads, under one lock.

use super::{
    ExitStatus, Thread,
    roster::Roster,
    tracing::{Tracer, Tracing},
};
use alloc::{boxed::Box, sync::Arc};
use memwright_linux_abi::signal::{
    Actions, AlternateStack, Pending, Signal, SignalInfo, SignalSet,
};
use memwright_linux_sched::scheduler::Work;

/// The signal state of one thread.
#[derive(Debug, Default)]
pub struct ThreadSignals {
    /// Blocked signals.
    pub blocked: SignalSet,
    /// The mask to restore after the current call (`rt_sigsuspend`, `ppoll`).
    pub saved_mask: Option<SignalSet>,
    /// Signals sent to this thread alone.
    pub pending: Pending,
    /// Signals that `rt_sigtimedwait` waits for although they are blocked.
    pub waited: SignalSet,
    /// The alternate stack.
    pub alternate_stack: AlternateStack,
    /// The tracing state of a traced thread. After the tracer has detached, it remains until the thread has handled the
    /// detachment.
    pub traced: Option<Box<Tracing>>,
}

impl ThreadSignals {
    /// Returns whether the thread can take this signal now.
    pub fn takes(&self, signal: Signal) -> bool {
        !self.blocked.contains(signal) || self.waited.contains(signal)
    }
}

/// Whether a process is stopped.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Stop {
    /// The process is not stopped.
    #[default]
    Running,
    /// A signal stopped the process.
    Stopped(Signal),
}

/// The signal state of a process.
pub struct Signals {
    /// The actions for all signals.
    pub actions: Actions,
    /// Signals sent to the process, which any of its threads can take.
    pub pending: Pending,
    /// The threads of the process, oldest first.
    pub threads: Roster<Thread, ThreadSignals>,
    /// The status with which the process is exiting; `None` while it is not exiting.
    pub group_exit: Option<ExitStatus>,
    /// `None`, or the thread that is in `execve`: all other threads exit, and it alone continues.
    pub executing: Option<Arc<Thread>>,
    /// Whether the process is stopped.
    pub stop: Stop,
    /// Whether all threads have stopped and the notification of the parent was recorded.
    pub stop_reported: bool,
    /// The tracer of the leader, if the leader exited before other threads. The tracer is notified when the last thread
    /// exits.
    pub leader_tracer: Option<Tracer>,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            actions: Actions::default(),
            pending: Pending::default(),
            threads: Roster::default(),
            group_exit: None,
            executing: None,
            stop: Stop::Running,
            stop_reported: false,
            leader_tracer: None,
        }
    }
}

impl Signals {
    /// Returns the number of queued signals of the process and all its threads.
    #[must_use]
    pub fn queued(&self) -> usize {
        let own = self.threads.iter().map(|(_, state)| state.pending.len());
        self.pending.len() + own.sum::<usize>()
    }

    /// Returns the state of a thread of this process.
    ///
    /// # Panics
    /// If the thread has left the process.
    pub fn thread(&mut self, thread: &Thread) -> &mut ThreadSignals {
        let found = self.find(thread);
        found.expect("a thread has signal state while it lives")
    }

    /// Returns the state of a thread, unless it has left the process.
    pub fn find(&mut self, thread: &Thread) -> Option<&mut ThreadSignals> {
        self.threads.get_mut(thread)
    }

    /// Returns whether a process traces this thread.
    pub fn is_traced(&mut self, thread: &Thread) -> bool {
        let traced = self.thread(thread).traced.as_ref();
        traced.is_some_and(|tracing| tracing.tracer.is_some())
    }

    /// Recomputes whether a thread must handle signals before it returns to user mode. `thread` must be the calling
    /// thread, or the caller must wake it afterwards: the thread may have been chosen to take a signal.
    pub fn recalculate(&mut self, thread: &Thread) {
        let shared = self.pending.set();
        let busy = self.group_exit.is_some()
            || self.stop != Stop::Running
            || self
                .executing
                .as_deref()
                .is_some_and(|one| !core::ptr::eq(one, thread));
        let state = self.thread(thread);
        let deliverable = state.pending.set().union(shared).minus(state.blocked);
        let traced = state.traced.as_deref();
        let trap = traced
            .is_some_and(|tracing| tracing.interrupted || tracing.changed || tracing.call_ended);
        let wanted = busy || trap || !deliverable.is_empty();
        thread.set_work(Work::SIGNAL, wanted);
    }

    /// Replaces the caller's signal mask. If the caller was chosen for a signal sent to the process and now blocks it,
    /// chooses another thread (`retarget_shared_pending` of Linux 7.2, `kernel/signal.c`).
    pub fn set_blocked(&mut self, thread: &Arc<Thread>, blocked: SignalSet) {
        let blocked = blocked.minus(SignalSet::UNBLOCKABLE);
        let before = core::mem::replace(&mut self.thread(thread).blocked, blocked);
        self.recalculate(thread);
        let left = self.pending.set().intersection(blocked.minus(before));
        if !left.is_empty() && self.threads.len() > 1 {
            self.retarget(left);
        }
    }

    /// Chooses a thread again for each of `signals`, which were sent to the process: the thread that was chosen before
    /// may block the signal now, or may be exiting.
    pub fn retarget(&mut self, mut signals: SignalSet) {
        while let Some(signal) = signals.first() {
            signals = signals.without(signal);
            if let Some(taker) = self.taker(signal) {
                taker.set_work(Work::SIGNAL, true);
                taker.notify();
            }
        }
    }

    /// Returns the thread that takes a signal sent to the process: the oldest one that does not block it, preferably
    /// one without other pending signals (`complete_signal` of Linux 7.2).
    pub fn taker(&self, signal: Signal) -> Option<&Arc<Thread>> {
        let mut second = None;
        for (thread, state) in self.threads.iter() {
            if !state.takes(signal) || thread.exit_code().is_some() {
                continue;
            }
            if !thread.signal_pending() {
                return Some(thread);
            }
            second = second.or(Some(thread));
        }
        second
    }

    /// Makes every thread of the process check for signals before it next returns to user mode.
    pub fn alert_all(&self) {
        for (thread, _) in self.threads.iter() {
            thread.set_work(Work::SIGNAL, true);
            thread.notify();
        }
    }

    /// Returns the stop signal if all threads have stopped and the parent has not been notified of this stop. Records
    /// the notification, which the caller then sends.
    pub fn stop_is_complete(&mut self) -> Option<Signal> {
        let Stop::Stopped(signal) = self.stop else {
            return None;
        };
        let complete =
            !self.threads.is_empty() && self.threads.iter().all(|(thread, _)| thread.is_stopped());
        if !complete || self.stop_reported {
            return None;
        }
        self.stop_reported = true;
        Some(signal)
    }

    /// Takes the next pending signal that is not in `blocked`: one that was sent to the thread, or, if there is none,
    /// one that was sent to the process.
    pub fn take(&mut self, thread: &Thread, blocked: SignalSet) -> Option<SignalInfo> {
        let own = self.thread(thread).pending.take(blocked);
        own.or_else(|| self.pending.take(blocked))
    }

    /// Returns whether a signal can be discarded when it is sent: the process ignores it, and no thread blocks it,
    /// waits for it or is traced.
    pub fn ignored(&self, signal: Signal) -> bool {
        // A signal that is blocked, or waited for, is kept: its action may change before it is unblocked.
        let kept = |state: &ThreadSignals| {
            // The tracer decides what happens to the signal.
            state.traced.is_some()
                || state.blocked.contains(signal)
                || state.waited.contains(signal)
                || state.saved_mask.is_some_and(|mask| mask.contains(signal))
        };
        self.actions.get(signal).ignores(signal)
            && !self.threads.iter().any(|(_, state)| kept(state))
    }
}
