//! The life of processes and threads: `clone`, `fork`, exit, `wait`, and process groups and sessions.

mod clone;
mod exit;
mod fork;
mod group;
mod thread_start;
mod wait;

pub use clone::{CloneFlags, CloneRequest, clone};
pub use exit::{end_group, exit_thread};
pub use group::{set_group, set_session};
pub use wait::{WaitOptions, WaitTarget, Waited, wait_for_child};
