//! What is known of a traced thread.

use crate::{
    arch::x86_64::regs::{FpuArea, UserState},
    signal::{Signal, SignalInfo},
};
use alloc::boxed::Box;

/// A thread that a process traces. Part of its signal state.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// The process that traces it; `None` once that let go of it, until the thread itself finds out.
    pub(crate) tracer: Option<u32>,
    /// It is killed when its tracer ends (`PTRACE_O_EXITKILL`).
    pub(crate) killed_at_end: bool,
    /// It runs one instruction at a time: the trap flag is the tracer's, not the program's.
    pub(crate) steps: bool,
    /// Its tracer let it go on although its process is stopped.
    pub(crate) passes_stop: bool,
    /// What it lays open while it stands still.
    pub(crate) standing: Option<Box<Standing>>,
}

/// A traced thread that stands still.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Why.
    pub(crate) signal: Signal,
    /// The signal that it is about to take; none when its process is stopped.
    pub(crate) info: Option<SignalInfo>,
    /// The tracer's wait has been told.
    pub(crate) reported: bool,
    /// Its registers.
    pub(crate) state: UserState,
    /// Its extended state.
    pub(crate) extended: Box<FpuArea>,
    /// How it is to go on.
    pub(crate) resume: Option<Resume>,
}

/// How a thread goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Resume {
    /// The signal that it takes, in place of the one that it was about to take.
    pub(crate) signal: Option<Signal>,
    /// One instruction only.
    pub(crate) step: bool,
}
