//! Processes and threads, their signals and timers, the table of all of them, and the files and probes that observe
//! them.
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` disallows calls that abort if memory is exhausted. Tests may use them.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

pub mod call_counts;
pub mod file_signal;
pub mod perf_event;
pub mod pidfd;
pub mod probes;
pub mod process;
pub mod reclaim_cursor;
pub mod signalfd;
pub mod uname;
