//! Process groups and sessions.

use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_linux_tasks::process::{Member, Process, Tasks};

/// Implements `setpgid`: moves process `target` (0 for the caller) into group `group` (0 for the id of the target).
///
/// # Errors
/// `EINVAL`, `ESRCH`, `EACCES` and `EPERM`, like `sys_setpgid` of Linux 7.2 (`kernel/sys.c`).
pub fn set_group(tasks: &Tasks, caller: &Process, target: i32, group: i32) -> Result<(), Errno> {
    if target < 0 || group < 0 {
        return Err(if group < 0 {
            Errno::EINVAL
        } else {
            Errno::ESRCH
        });
    }
    let target = if target == 0 {
        caller.id
    } else {
        target as u32
    };
    let group = if group == 0 { target } else { group as u32 };
    let mut tasks = tasks.lock();
    let process = tasks
        .members
        .get(&target)
        .ok_or(Errno::ESRCH)?
        .process
        .clone();
    if process.parent() == caller.id && process.id != caller.id {
        if process.session() != caller.session() {
            return Err(Errno::EPERM);
        }
        if process.executed.load(Ordering::SeqCst) {
            return Err(Errno::EACCES);
        }
    } else if process.id != caller.id {
        return Err(Errno::ESRCH);
    }
    if process.session() == process.id {
        return Err(Errno::EPERM);
    }
    let same_session = |member: &Member| member.process.session() == caller.session();
    if group != target && !tasks.members_of(group).any(same_session) {
        return Err(Errno::EPERM);
    }
    tasks.join_group(&process, group);
    Ok(())
}

/// Implements `setsid`: makes the caller the leader of a new session and group.
///
/// # Errors
/// `EPERM` if a process group has the caller's id already.
pub fn set_session(tasks: &Tasks, caller: &Process) -> Result<u32, Errno> {
    let mut tasks = tasks.lock();
    if tasks.members_of(caller.id).next().is_some() {
        return Err(Errno::EPERM);
    }
    tasks.lead_session(caller);
    Ok(caller.id)
}
