//! Processes and threads from creation to exit: `clone`, `fork`, exit, `wait`, and process groups and sessions.

mod child;
mod clone;
mod exit;
mod fork;
mod group;
mod thread_start;
mod wait;

pub use child::Child;
pub(crate) use clone::create;
pub use clone::{CloneFlags, CloneRequest};
pub(crate) use exit::exit_thread;
pub use exit::{ProcessEnd, end_group};
pub use group::{set_group, set_session};
pub(crate) use thread_start::new_thread;
pub use wait::{WaitOptions, WaitTarget, Waited, wait_for_child};
