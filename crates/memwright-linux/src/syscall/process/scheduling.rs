//! System calls for scheduling. The scheduler has one policy, and treats all CPUs equally.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::int,
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Memory, abi::Timespec, errno::Errno};
use memwright_linux_base::sync;
use memwright_linux_sched::scheduler::{Scheduler, TIME_SLICE};
use memwright_linux_tasks::process::Thread;
use memwright_linux_vfs::identity::Capabilities;
use memwright_table::CpuSet;

/// Implements `sched_yield`.
pub fn sched_yield(
    current: &Current<'_>,
    scheduler: &Scheduler<Thread>,
    _arguments: &Arguments,
) -> CallResult {
    scheduler.yield_now(current.thread);
    Ok(0)
}

/// Returns the thread with this id, or the calling thread for id 0.
///
/// # Errors
/// `ESRCH` if there is no such thread.
fn find(caller: &Arc<Thread>, id: u64) -> Result<Arc<Thread>, Errno> {
    match id as u32 {
        0 => Ok(caller.clone()),
        id => caller.process.tasks.thread(id).ok_or(Errno::ESRCH),
    }
}

/// Checks that a thread with this id exists. Id 0 means the calling thread.
///
/// # Errors
/// `ESRCH` if there is no such thread, `EINVAL` for a negative id.
fn check(caller: &Arc<Thread>, id: u64) -> Result<(), Errno> {
    if int(id) < 0 {
        return Err(Errno::EINVAL);
    }
    find(caller, id).map(|_| ())
}

/// Implements `sched_getaffinity`: stores the set of those CPUs of the machine on which the thread is allowed to run.
pub fn sched_getaffinity(
    current: &Current<'_>,
    scheduler: &Scheduler<Thread>,
    arguments: &Arguments,
) -> CallResult {
    let [id, size, mask, ..] = *arguments;
    if size.saturating_mul(8) < u64::from(scheduler.all_cpus().len()) || size % 8 != 0 {
        return Err(Errno::EINVAL);
    }
    let allowed = find(current.thread, id)?.affinity().bits() & scheduler.all_cpus().bits();
    current.user.write_value(mask, &allowed)?;
    Ok(8)
}

/// Implements `sched_setaffinity`. A thread that runs on a CPU that is no longer allowed moves to another CPU before it
/// returns to user mode.
pub fn sched_setaffinity(
    current: &Current<'_>,
    scheduler: &Scheduler<Thread>,
    arguments: &Arguments,
) -> CallResult {
    let [id, size, mask, ..] = *arguments;
    let mut bytes = [0; 8];
    let length = bytes.len().min(size as usize);
    current.user.read_bytes(mask, &mut bytes[..length])?;
    let thread = find(current.thread, id)?;
    if !Rights::of(current.thread, &thread).may_change() {
        return Err(Errno::EPERM);
    }
    let wanted = u64::from_le_bytes(bytes) & scheduler.all_cpus().bits();
    if wanted == 0 {
        return Err(Errno::EINVAL);
    }
    scheduler.restrict(&thread, CpuSet::from_bits(wanted));
    Ok(0)
}

/// The properties that permit a caller to change the scheduling of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    /// Whether the caller's effective user is the effective or the real user of the thread.
    pub(super) owns: bool,
    /// Whether the caller has `CAP_SYS_NICE`.
    pub(super) privileged: bool,
}

impl Rights {
    /// Returns the rights of `caller` to change `thread`.
    pub(super) fn of(caller: &Thread, thread: &Thread) -> Self {
        let (effective, privileged) = {
            let credentials = caller.process.identity.credentials.lock();
            (
                credentials.user.effective,
                credentials.has(Capabilities::NICE),
            )
        };
        let owner = thread.process.identity.credentials.lock().user;
        Self {
            owns: effective == owner.effective || effective == owner.real,
            privileged,
        }
    }

    /// Returns whether the caller owns the thread or is privileged (`check_same_owner` of Linux 7.2).
    pub(super) fn may_change(self) -> bool {
        self.owns || self.privileged
    }
}

/// Implements `sched_getscheduler`: always returns `SCHED_OTHER`.
pub fn sched_getscheduler(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    check(current.thread, arguments[0])?;
    Ok(0)
}

/// Implements `sched_getparam`: always returns priority 0, the only priority of `SCHED_OTHER`.
pub fn sched_getparam(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    if arguments[1] == 0 {
        return Err(Errno::EINVAL);
    }
    check(current.thread, arguments[0])?;
    current.user.write_value(arguments[1], &0i32).map(|()| 0)
}

/// Returns the lowest and the highest priority of a policy.
fn priorities(policy: i32) -> Result<(i32, i32), Errno> {
    match policy as u32 {
        raw::SCHED_FIFO | raw::SCHED_RR => Ok((1, 99)),
        raw::SCHED_NORMAL | raw::SCHED_BATCH | raw::SCHED_IDLE | raw::SCHED_DEADLINE => Ok((0, 0)),
        _ => Err(Errno::EINVAL),
    }
}

/// Checks a requested policy. Accepts only `SCHED_OTHER`. For other policies, returns the error that Linux returns to a
/// process without `CAP_SYS_NICE` (`__sched_setscheduler` of Linux 7.2, `kernel/sched/syscalls.c`).
fn change_policy(policy: i32, priority: i32) -> Result<(), Errno> {
    let policy = policy & !(raw::SCHED_RESET_ON_FORK as i32);
    let (lowest, highest) = priorities(policy)?;
    if policy as u32 == raw::SCHED_DEADLINE || !(lowest..=highest).contains(&priority) {
        Err(Errno::EINVAL)
    } else if policy as u32 == raw::SCHED_NORMAL {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Implements `sched_setscheduler` for `SCHED_OTHER` only.
pub fn sched_setscheduler(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [id, policy, parameter, ..] = *arguments;
    if parameter == 0 || int(policy) < 0 || int(id) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority: i32 = current.user.read_value(parameter)?;
    check(current.thread, id)?;
    change_policy(int(policy), priority).map(|()| 0)
}

/// Implements `sched_setparam` for priority 0 only.
pub fn sched_setparam(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [id, parameter, ..] = *arguments;
    if parameter == 0 || int(id) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority: i32 = current.user.read_value(parameter)?;
    check(current.thread, id)?;
    change_policy(raw::SCHED_NORMAL as i32, priority).map(|()| 0)
}

/// Implements `sched_get_priority_max`.
pub fn sched_get_priority_max(_current: &Current<'_>, arguments: &Arguments) -> CallResult {
    Ok(priorities(int(arguments[0]))?.1 as u64)
}

/// Implements `sched_get_priority_min`.
pub fn sched_get_priority_min(_current: &Current<'_>, arguments: &Arguments) -> CallResult {
    Ok(priorities(int(arguments[0]))?.0 as u64)
}

/// Implements `sched_rr_get_interval`: returns the time slice.
pub fn sched_rr_get_interval(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    check(current.thread, arguments[0])?;
    current
        .user
        .write_value(arguments[1], &Timespec::from_nanoseconds(TIME_SLICE))
        .map(|()| 0)
}

/// Implements `getcpu`.
pub fn getcpu(current: &Current<'_>, memory: &Memory, arguments: &Arguments) -> CallResult {
    let cpu = sync::cpu();
    let node = memory.frames().topology().node_of(cpu);
    current
        .user
        .write_optional(arguments[0], &(cpu.index() as u32))?;
    current
        .user
        .write_optional(arguments[1], &u32::from(node))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::{Errno, change_policy, priorities};

    #[test]
    fn policies_and_priorities() {
        for (policy, expected) in [
            (0, Ok((0, 0))),
            (1, Ok((1, 99))),
            (2, Ok((1, 99))),
            (3, Ok((0, 0))),
            (4, Err(Errno::EINVAL)),
            (5, Ok((0, 0))),
            (6, Ok((0, 0))),
            (-1, Err(Errno::EINVAL)),
        ] {
            assert_eq!(priorities(policy), expected, "{policy}");
        }
        const RESET_ON_FORK: i32 = 0x4000_0000;
        for (policy, priority, expected) in [
            (0, 0, Ok(())),
            (RESET_ON_FORK, 0, Ok(())),
            (0, 1, Err(Errno::EINVAL)),
            (1, 0, Err(Errno::EINVAL)),
            (1, 1, Err(Errno::EPERM)),
            (2, 99, Err(Errno::EPERM)),
            (2, 100, Err(Errno::EINVAL)),
            (3, 0, Err(Errno::EPERM)),
            (5, 0, Err(Errno::EPERM)),
            (6, 0, Err(Errno::EINVAL)),
            (7, 0, Err(Errno::EINVAL)),
        ] {
            assert_eq!(
                change_policy(policy, priority),
                expected,
                "{policy} {priority}"
            );
        }
    }
}
