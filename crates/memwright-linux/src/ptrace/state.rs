//! The state of a traced thread.

use crate::{
    arch::x86_64::regs::{FpuArea, UserState},
    signal::{Signal, SignalInfo},
};
use alloc::boxed::Box;

/// The tracing of a thread by a process. Part of the thread's signal state.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// The process that traces it; `None` once the tracer has detached, until the thread notices.
    pub(crate) tracer: Option<u32>,
    /// It is killed when its tracer exits (`PTRACE_O_EXITKILL`).
    pub(crate) killed_at_end: bool,
    /// It single-steps: the trap flag was set by the tracer, not by the program.
    pub(crate) steps: bool,
    /// Its tracer resumed it although its process is stopped.
    pub(crate) passes_stop: bool,
    /// Its published registers while it is in a ptrace stop.
    pub(crate) standing: Option<Box<Standing>>,
}

/// A thread in a ptrace stop.
#[derive(Debug)]
pub(crate) struct Standing {
    /// The signal that is reported to the tracer.
    pub(crate) signal: Signal,
    /// The signal that it is about to take; `None` if its process is stopped.
    pub(crate) info: Option<SignalInfo>,
    /// A wait of the tracer has reported the stop.
    pub(crate) reported: bool,
    /// Its registers.
    pub(crate) state: UserState,
    /// Its extended state.
    pub(crate) extended: Box<FpuArea>,
    /// How to resume it, once the tracer has decided.
    pub(crate) resume: Option<Resume>,
}

/// How a thread is resumed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Resume {
    /// The signal that it takes instead of the one it was about to take.
    pub(crate) signal: Option<Signal>,
    /// Run a single instruction only.
    pub(crate) step: bool,
}
