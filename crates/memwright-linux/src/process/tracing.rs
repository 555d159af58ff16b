//! The state of a traced thread.

use super::{Signals, Thread};
use crate::{
    arch::x86_64::regs::{FpuArea, UserState},
    signal::{Signal, SignalInfo},
};
use alloc::boxed::Box;

/// The tracing of a thread by a process. It is part of the thread's signal state.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// The process that traces the thread; `None` from the detaching of the tracer until the thread notices it.
    pub(crate) tracer: Option<u32>,
    /// The thread is killed when its tracer exits (`PTRACE_O_EXITKILL`).
    pub(crate) killed_at_end: bool,
    /// The thread single-steps: the tracer set the trap flag, not the program.
    pub(crate) steps: bool,
    /// The tracer resumed the thread although its process is stopped.
    pub(crate) passes_stop: bool,
    /// The published registers of the thread while it is in a ptrace stop.
    pub(crate) standing: Option<Box<Standing>>,
}

/// A thread in a ptrace stop.
#[derive(Debug)]
pub(crate) struct Standing {
    /// The signal that the stop reports to the tracer.
    pub(crate) signal: Signal,
    /// The signal that the thread is about to take; `None` if its process is stopped.
    pub(crate) info: Option<SignalInfo>,
    /// A wait of the tracer has reported the stop.
    pub(crate) reported: bool,
    /// Its registers.
    pub(crate) state: UserState,
    /// Its extended state.
    pub(crate) extended: Box<FpuArea>,
    /// How to resume the thread, once the tracer has decided.
    pub(crate) resume: Option<Resume>,
}

/// How a thread is resumed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Resume {
    /// The signal that the thread takes instead of the one it was about to take; `None` for no signal.
    pub(crate) signal: Option<Signal>,
    /// Execute a single instruction only.
    pub(crate) step: bool,
}

impl Signals {
    /// Returns the tracing state of a thread of the process, unless its tracer has detached.
    pub(crate) fn tracing(&mut self, thread: &Thread) -> Option<&mut Tracing> {
        let traced = self.find(thread)?.traced.as_deref_mut();
        traced.filter(|tracing| tracing.tracer.is_some())
    }
}

impl Thread {
    /// Returns whether the thread is in a ptrace stop and its tracer has not resumed it yet.
    pub(crate) fn stands_still(&self) -> bool {
        let mut signals = self.process.signals.lock();
        let tracing = signals.tracing(self);
        let standing = tracing.and_then(|tracing| tracing.standing.as_ref());
        standing.is_some_and(|standing| standing.resume.is_none())
    }
}
