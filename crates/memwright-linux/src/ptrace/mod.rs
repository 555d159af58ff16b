//! Tracing of processes for debuggers (Linux 7.2 `kernel/ptrace.c`).
//!
//! A traced thread stops whenever it takes a signal and whenever its process stops. It then publishes its registers
//! ([`Standing`]), which its tracer reads and writes until it resumes the thread. The tracer never accesses the kernel
//! stack of a running thread. All of this is protected by the lock of the traced process's signals.
//!
//! The tracer is a process, and any of its threads may issue requests. On Linux only the thread that attached may.

mod attach;
mod registers;
mod stand;
mod state;

pub(crate) use attach::{abandon, attach, be_traced, detach, release_tracees};
pub use registers::UserRegisters;
pub(crate) use registers::{Extended, general, set_general};
pub(crate) use stand::{resume, stand_still, standing_unreported, stands_still, with_standing};
pub(crate) use state::{Resume, Standing, Tracing};
