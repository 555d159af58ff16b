//! Process and thread ids, process groups and sessions.

use crate::{
    context::{Arguments, CallResult, Context},
    errno::Errno,
    lifecycle::{set_group, set_session},
    process::Process,
    syscall::call::int,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

fn find(context: &Context<'_>, id: u64) -> Result<Arc<Process>, Errno> {
    match int(id) {
        0 => Ok(context.process().clone()),
        id if id < 0 => Err(Errno::ESRCH),
        id => context.kernel.tasks.process(id as u32).ok_or(Errno::ESRCH),
    }
}

/// Implements `getpgid`.
pub fn getpgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    Ok(find(context, arguments[0])?.group().into())
}

/// Implements `getpgrp`.
pub fn getpgrp(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Ok(context.process().group().into())
}

/// Implements `setpgid`.
pub fn setpgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    set_group(
        context.kernel,
        context.process(),
        int(arguments[0]),
        int(arguments[1]),
    )?;
    Ok(0)
}

/// Implements `getsid`.
pub fn getsid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    Ok(find(context, arguments[0])?.session().into())
}

/// Implements `setsid`.
pub fn setsid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Ok(set_session(context.kernel, context.process())?.into())
}

/// Implements `set_tid_address`.
pub fn set_tid_address(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    context
        .thread
        .clear_child_tid
        .store(arguments[0], Ordering::Relaxed);
    Ok(context.thread.id().into())
}
