//! Processes and threads: the process table, signals and timers, cgroups, the files and probes through which programs
//! observe processes, and the host name and other state that all processes share.
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
