//! Tracing of processes for debuggers (Linux 7.2 `kernel/ptrace.c`).
//!
//! A traced thread stops whenever it takes a signal and whenever its process stops. It then publishes its registers
//! ([`Standing`]), which its tracer reads and writes until it resumes the thread. The tracer never accesses the kernel
//! stack of a running thread. The lock of the traced process's signals protects this state.
//!
//! The tracer is a process, and any of its threads is allowed to issue requests. On Linux only the thread that attached
//! is.

mod attach;
mod registers;
mod stand;

pub(crate) use attach::{abandon, attach, be_traced, detach, release_tracees};
pub use registers::UserRegisters;
pub(crate) use registers::{Extended, general, set_general};
pub(crate) use stand::{resume, stand_still, standing_unreported, with_standing};
