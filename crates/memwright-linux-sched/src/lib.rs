//! Threads that run, wait and are woken: run queues, wait queues, timers and CPU time.
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` lists what may allocate; tests may allocate freely.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

pub mod scheduler;
pub mod time;
pub mod wait;
