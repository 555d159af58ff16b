//! Scheduling as programs see it: one policy, CPUs that are all alike.

use super::{Arguments, CallResult, int};
use crate::{context::Context, errno::Errno};
use alloc::vec;

/// `sched_yield`.
pub fn sched_yield(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    context
        .kernel
        .scheduler
        .yield_now(context.kernel, context.thread);
    Ok(0)
}

/// A thread with this id exists; 0 is the caller.
fn check(context: &Context<'_>, id: u64) -> Result<(), Errno> {
    match int(id) {
        id if id < 0 => Err(Errno::EINVAL),
        0 => Ok(()),
        id => context
            .kernel
            .tasks
            .thread(id as u32)
            .map(|_| ())
            .ok_or(Errno::ESRCH),
    }
}

/// `sched_getaffinity`: every CPU.
pub fn sched_getaffinity(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [id, size, mask, ..] = *arguments;
    let cpus = context.kernel.host.cpu_count();
    if (size as usize).saturating_mul(8) < cpus || size % 8 != 0 {
        return Err(Errno::EINVAL);
    }
    check(context, id)?;
    let mut bits = vec![0u8; (size as usize).min(cpus.next_multiple_of(64) / 8)];
    for cpu in 0..cpus {
        bits[cpu / 8] |= 1 << (cpu % 8);
    }
    context.write_bytes(mask, &bits)?;
    Ok(bits.len() as u64)
}

/// `sched_setaffinity`: with one CPU, any set that holds it means no change.
pub fn sched_setaffinity(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [id, size, mask, ..] = *arguments;
    check(context, id)?;
    if size == 0 {
        return Err(Errno::EINVAL);
    }
    let first: u8 = context.read_value(mask)?;
    if first & 1 == 0 {
        Err(Errno::EINVAL)
    } else {
        Ok(0)
    }
}

/// `sched_getscheduler`: `SCHED_OTHER`.
pub fn sched_getscheduler(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    check(context, arguments[0])?;
    Ok(0)
}

/// `sched_getparam`: priority 0, the only one of `SCHED_OTHER`.
pub fn sched_getparam(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    check(context, arguments[0])?;
    context.write_value(arguments[1], &0i32).map(|()| 0)
}

/// `getpriority`: nice 0, which the call returns as 20.
pub fn getpriority(_context: &Context<'_>, arguments: &Arguments) -> CallResult {
    if arguments[0] > 2 {
        Err(Errno::EINVAL)
    } else {
        Ok(20)
    }
}

/// `setpriority`: accepted, without effect on the round-robin order.
pub fn setpriority(_context: &Context<'_>, arguments: &Arguments) -> CallResult {
    if arguments[0] > 2 {
        Err(Errno::EINVAL)
    } else {
        Ok(0)
    }
}

/// `getcpu`.
pub fn getcpu(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let cpu = context.kernel.host.cpu().index() as u32;
    context.write_optional(arguments[0], &cpu)?;
    context.write_optional(arguments[1], &0u32)?;
    Ok(0)
}
