//! Tracing of one process by another, for debuggers (Linux 7.2 `kernel/ptrace.c`).
//!
//! A traced thread stands still whenever it takes a signal, and whenever its process stops. It then lays its registers
//! open ([`Standing`]), which its tracer reads and writes until it lets it go on: nobody reaches into the stack of a
//! thread that runs. Everything is guarded by the lock of the traced process's signals.
//!
//! The tracer is a process: each of its threads may give the orders, where on Linux only the one that attached may.

mod attach;
mod registers;
mod stand;
mod state;

pub(crate) use attach::{abandon, attach, be_traced, detach, release_tracees};
pub use registers::UserRegisters;
pub(crate) use registers::{Extended, general, set_general};
pub(crate) use stand::{resume, stand_still, standing_unreported, stands_still, with_standing};
pub(crate) use state::{Resume, Standing, Tracing};
