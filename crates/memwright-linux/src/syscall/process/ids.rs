//! Process and thread ids, process groups and sessions.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    lifecycle::{set_group, set_session},
    syscall::call::int,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_linux_tasks::process::{Process, Tasks};

fn find(current: &Current<'_>, tasks: &Tasks, id: u64) -> Result<Arc<Process>, Errno> {
    match int(id) {
        0 => Ok(current.process().clone()),
        id if id < 0 => Err(Errno::ESRCH),
        id => tasks.process(id as u32).ok_or(Errno::ESRCH),
    }
}

/// Implements `getpgid`.
pub fn getpgid(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    Ok(find(current, tasks, arguments[0])?.group().into())
}

/// Implements `getpgrp`.
pub fn getpgrp(current: &Current<'_>, _arguments: &Arguments) -> CallResult {
    Ok(current.process().group().into())
}

/// Implements `setpgid`.
pub fn setpgid(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    set_group(
        tasks,
        current.process(),
        int(arguments[0]),
        int(arguments[1]),
    )?;
    Ok(0)
}

/// Implements `getsid`.
pub fn getsid(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    Ok(find(current, tasks, arguments[0])?.session().into())
}

/// Implements `setsid`.
pub fn setsid(current: &Current<'_>, tasks: &Tasks, _arguments: &Arguments) -> CallResult {
    Ok(set_session(tasks, current.process())?.into())
}

/// Implements `set_tid_address`.
pub fn set_tid_address(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    current
        .thread
        .clear_child_tid
        .store(arguments[0], Ordering::Relaxed);
    Ok(current.thread.id().into())
}
