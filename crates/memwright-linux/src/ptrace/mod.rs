//! Tracing of processes by debuggers (Linux 7.2 `kernel/ptrace.c`).
//!
//! A traced thread enters a ptrace stop when it takes a signal and when its process stops. It then publishes its
//! registers ([`Standing`]), and the tracer reads and writes the published registers until it resumes the thread. The
//! tracer never accesses the kernel stack of a running thread. The lock of the traced process's signals protects this
//! state.
//!
//! As on Linux, the tracer is the thread that attached. After `PTRACE_TRACEME`, every thread of the parent is allowed
//! to issue requests.
//!
//! ```text
//! attach   the start of a thread's tracing
//! detach   the end of a thread's tracing
//! stand    the stop: the thread publishes its registers, and waits
//! report   the reasons for a stop: signals, system calls, events
//! debug    debug exceptions
//! ```

mod attach;
mod debug;
mod detach;
mod registers;
mod report;
mod stand;

pub(crate) use attach::{attach, attach_child, be_traced};
pub(crate) use detach::{abandon, detach, release_tracees};
pub use registers::UserRegisters;
pub(crate) use registers::{Extended, general, set_general};
pub(crate) use report::{Event, Traced};
pub(crate) use stand::{
    interrupt, listen, resume, standing_unreported, with_standing, with_traced,
};
