//! System calls on files: one module per group, each with its table entries.

pub mod cache;
pub mod change;
pub mod control;
pub mod descriptor;
pub mod epoll;
pub mod eventfd;
pub mod io_uring;
pub mod list;
pub mod memory;
pub mod mount;
pub mod name;
pub mod open;
pub mod perf_event;
pub mod pidfd;
pub mod pipe;
pub mod place;
pub mod poll;
pub mod remote;
pub mod select;
pub mod signalfd;
pub mod socket;
pub mod splice;
pub mod status;
pub mod timerfd;
pub mod transfer;
pub mod userfaultfd;
