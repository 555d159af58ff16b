//! The state of a traced thread.

use alloc::boxed::Box;
use linux_raw_sys::ptrace as raw;
use memwright_linux_abi::{
    arch::x86_64::{
        debug::DebugRegisters,
        regs::{FpuArea, UserState},
    },
    host::ContextId,
    signal::{Detail, Signal, SignalInfo},
};
use memwright_linux_base::flags;

flags! {
    /// `PTRACE_O_` options (`linux/ptrace.h`).
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct TraceOptions: u32 {
        /// Set bit 7 of the signal number in stops at system calls.
        const CALLS_MARKED = raw::PTRACE_O_TRACESYSGOOD;
        /// Stop at `fork`.
        const FORK = raw::PTRACE_O_TRACEFORK;
        /// Stop at `vfork`.
        const VFORK = raw::PTRACE_O_TRACEVFORK;
        /// Stop at `clone`.
        const CLONE = raw::PTRACE_O_TRACECLONE;
        /// Stop at `execve`.
        const EXEC = raw::PTRACE_O_TRACEEXEC;
        /// Stop when the child of `vfork` has released the address space.
        const VFORK_DONE = raw::PTRACE_O_TRACEVFORKDONE;
        /// Stop before the exit of the thread.
        const EXIT = raw::PTRACE_O_TRACEEXIT;
        /// Stop at an event of seccomp. Has no effect.
        const SECCOMP = raw::PTRACE_O_TRACESECCOMP;
        /// Kill the thread when its tracer exits.
        const KILLED_AT_END = raw::PTRACE_O_EXITKILL;
    }
}

/// The thread that traces another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tracer {
    /// The process of the tracer.
    pub process: u32,
    /// The kernel stack of the tracer, which no other living thread has; `None` if every thread of the process traces
    /// (`PTRACE_TRACEME`).
    pub context: Option<ContextId>,
}

/// The tracing of a thread. It is part of the thread's signal state.
#[derive(Debug, Default)]
pub struct Tracing {
    /// The thread's tracer; `None` after the tracer has detached, until the thread handles this.
    pub tracer: Option<Tracer>,
    /// The options that the tracer has set.
    pub options: TraceOptions,
    /// Whether the tracer attached by `PTRACE_SEIZE`.
    pub seized: bool,
    /// Whether the thread runs in single steps because its tracer has requested this. A trap flag that the program
    /// itself has set has no influence on this field.
    pub steps: bool,
    /// The action of the thread at system calls.
    pub calls: AtCalls,
    /// Whether the thread must still enter a ptrace stop for a system call that has ended.
    pub call_ended: bool,
    /// Whether the thread runs although its process is stopped, because the tracer has resumed it.
    pub passes_stop: bool,
    /// Whether the thread must enter a ptrace stop (`PTRACE_INTERRUPT`, `PTRACE_SEIZE`).
    pub interrupted: bool,
    /// Whether the process was stopped or continued since the thread last reported this to a tracer that used
    /// `PTRACE_SEIZE`.
    pub changed: bool,
    /// The state that the tracer can access while the thread is in a ptrace stop; otherwise `None`.
    pub standing: Option<Box<Standing>>,
}

/// The action of a traced thread at its system calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AtCalls {
    /// The thread does not stop.
    #[default]
    Pass,
    /// The thread stops at the start and at the end of each call (`PTRACE_SYSCALL`).
    Stop,
    /// The thread stops at the start of each call, which has no effect (`PTRACE_SYSEMU`).
    Emulate,
}

/// What a ptrace stop reports to the tracer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Report {
    /// The signal, with the number of an event in the bits from 8 on.
    pub code: u32,
    /// The cause, as `PTRACE_GETSIGINFO` returns it; `None` for a stop of the process.
    pub info: Option<SignalInfo>,
    /// The event message, which `PTRACE_GETEVENTMSG` returns.
    pub message: u64,
    /// Whether the thread is about to take the signal.
    pub takes_signal: bool,
    /// True if the thread stopped with its process, or because the tracer interrupted it.
    pub by_stop: bool,
}

impl Report {
    /// Returns the report of a signal that the thread is about to take.
    pub fn signal(info: SignalInfo) -> Self {
        Self {
            code: info.signal.number().into(),
            info: Some(info),
            message: 0,
            takes_signal: true,
            by_stop: false,
        }
    }

    /// Creates the report of a stop that no signal caused. `process` is the id of the stopped process, which
    /// `PTRACE_GETSIGINFO` reports as the sender (`ptrace_do_notify` of Linux 7.2, `kernel/signal.c`).
    pub fn notice(signal: Signal, code: u32, message: u64, process: u32) -> Self {
        let detail = Detail::Sender { process, user: 0 };
        Self {
            code,
            info: Some(SignalInfo {
                signal,
                code: code as i32,
                errno: 0,
                detail,
            }),
            message,
            takes_signal: false,
            by_stop: false,
        }
    }

    /// Returns whether the stop is in the middle of a system call, whose end will be reported later.
    pub fn is_in_call(&self) -> bool {
        let event = self.code >> 8;
        event != 0 && !self.by_stop && event != raw::PTRACE_EVENT_EXIT
    }
}

/// The state of a thread in a ptrace stop: what the stop reports, and the registers that the tracer can access.
#[derive(Debug)]
pub struct Standing {
    /// The report of the stop.
    pub report: Report,
    /// Whether a wait of the tracer has reported the stop.
    pub reported: bool,
    /// Whether the thread stays in the stop until the state of its process changes (`PTRACE_LISTEN`).
    pub listens: bool,
    /// The registers of the thread.
    pub state: UserState,
    /// The extended state of the thread.
    pub extended: Box<FpuArea>,
    /// The debug registers of the thread.
    pub debug: DebugRegisters,
    /// How the tracer has resumed the thread; `None` until the tracer resumes it.
    pub resume: Option<Resume>,
}

impl Standing {
    /// Returns whether the tracer may issue requests: it has neither resumed the thread nor used `PTRACE_LISTEN`.
    pub fn waits(&self) -> bool {
        self.resume.is_none() && !self.listens
    }
}

/// How a thread is resumed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Resume {
    /// The signal that the thread takes instead of the one it was about to take; `None` for no signal.
    pub signal: Option<Signal>,
    /// Whether the thread executes a single instruction only.
    pub step: bool,
    /// The action of the thread at system calls.
    pub calls: AtCalls,
}

impl Tracing {
    /// Records that the process was stopped or continued, for a tracer that used `PTRACE_SEIZE`. Returns whether the
    /// thread must report this change.
    pub fn note_change(&mut self) -> bool {
        self.changed |= self.seized;
        self.seized
    }
}
