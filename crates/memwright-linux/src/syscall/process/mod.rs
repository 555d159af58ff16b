//! System calls that create, replace, terminate, schedule and observe processes and threads.

pub(super) mod clone;
mod exec;
mod exit;
pub(super) mod futex;
pub(super) mod identity;
mod ids;
pub(super) mod membarrier;
mod prctl;
pub(super) mod priority;
pub(super) mod ptrace;
pub(super) mod rseq;
pub(super) mod scheduling;
pub(super) mod signal;
mod wait;

pub(crate) use exec::execve;
pub use exit::{exit, exit_group};
pub use ids::{getpgid, getpgrp, getsid, set_tid_address, setpgid, setsid};
pub use prctl::{arch_prctl, prctl};
pub use wait::{wait4, waitid};
