//! The tracing of a thread, and its state as other processes see it.

use super::{Signals, Thread, Tracing, is_visible};
use memwright_linux_abi::host::ContextId;
use memwright_linux_sched::{scheduler::RunState, wait::Interest};

impl Signals {
    /// Returns the tracing state of a thread of the process, unless its tracer has detached.
    pub fn tracing(&mut self, thread: &Thread) -> Option<&mut Tracing> {
        let traced = self.find(thread)?.traced.as_deref_mut();
        traced.filter(|tracing| tracing.tracer.is_some())
    }
}

impl Thread {
    /// Returns whether the thread is in a ptrace stop and its tracer has not resumed it yet.
    pub fn stands_still(&self) -> bool {
        let mut signals = self.process.signals.lock();
        let tracing = signals.tracing(self);
        let standing = tracing.and_then(|tracing| tracing.standing.as_ref());
        standing.is_some_and(|standing| standing.resume.is_none())
    }

    /// Returns whether a thread of process `process` traces this thread. With `context`, returns whether the thread
    /// with that kernel stack traces it; if the tracer has no context, every thread of its process counts as the
    /// tracer.
    pub fn is_traced_by(&self, process: u32, context: Option<ContextId>) -> bool {
        let mut signals = self.process.signals.lock();
        let tracer = signals.tracing(self).and_then(|tracing| tracing.tracer);
        tracer
            .is_some_and(|tracer| tracer.process == process && is_visible(tracer.context, context))
    }

    /// Returns the process that traces the thread.
    pub fn tracer(&self) -> Option<u32> {
        let mut signals = self.process.signals.lock();
        let tracer = signals.tracing(self)?.tracer?;
        Some(tracer.process)
    }

    /// Returns the state letter of `/proc/PID/stat`: `R` running or runnable, `S` in an interruptible wait, `D` in an
    /// uninterruptible wait, `T` stopped, `t` in a ptrace stop, `X` exited. `Z` is a state of processes, not of
    /// threads.
    pub fn state_letter(&self) -> char {
        // Test this before the run state: a tracer that was notified of the stop can read the state before the thread
        // starts to wait.
        if self.stands_still() {
            return 't';
        }
        if self.is_stopped() {
            return 'T';
        }
        match self.run_state() {
            RunState::Running | RunState::Waiting | RunState::Ready => 'R',
            RunState::Blocked => match self.sleep().interest {
                Interest::Signals => 'S',
                Interest::Fatal => 'D',
                Interest::Continuation => 'T',
                // The tracer has resumed the thread, which has not been woken yet.
                Interest::Tracer => 'R',
            },
            RunState::Ended => 'X',
        }
    }
}
