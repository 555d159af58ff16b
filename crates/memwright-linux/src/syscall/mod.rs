//! System calls: one file per group.

pub mod file;
pub mod table;

use crate::{context::Context, errno::Errno};

/// The six argument registers.
pub type Arguments = [u64; 6];

/// What a system call returns: the value of RAX, or an error.
pub type CallResult = Result<u64, Errno>;

/// A system call.
pub type Handler = fn(&Context<'_>, &Arguments) -> CallResult;
