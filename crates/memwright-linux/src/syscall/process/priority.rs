//! `getpriority` and `setpriority` (Linux 7.3 `kernel/sys.c`).

use crate::{
    context::{Arguments, CallResult},
    syscall::{
        call::{Kind, SystemCall, int, real},
        process::scheduling::Rights,
    },
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::PausePoints;
use memwright_linux_sched::scheduler::Nice;
use memwright_linux_tasks::process::{Process, Thread};
use memwright_linux_vfs::identity::Resource;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_getpriority,
        "getpriority",
        &[Kind::Int, Kind::Int],
        |context, &[which, number, ..]| {
            getpriority(context.current.thread, which as u32, number as u32)
        },
    ),
    real(
        raw::__NR_setpriority,
        "setpriority",
        &[Kind::Int, Kind::Int, Kind::Int],
        |context, arguments| setpriority(context.current.thread, arguments),
    ),
];

/// Number of processes that are visited between two scheduling points.
const TOGETHER: u32 = 64;

/// Calls `act` for each thread that `which` and `number` select: one thread, the threads of a process group, or the
/// threads of a user. For number 0, the thread, group or user is the caller's. Like on Linux, `PRIO_PROCESS` selects a
/// single thread.
///
/// # Errors
/// `EINVAL` for an unknown `which`.
fn each_selected(
    caller: &Arc<Thread>,
    which: u32,
    number: u32,
    act: &mut dyn FnMut(&Arc<Thread>),
) -> Result<(), Errno> {
    let (process, tasks) = (&caller.process, caller.process.tasks);
    let mut points = PausePoints::every(TOGETHER);
    match which {
        raw::PRIO_PROCESS if number == 0 => act(caller),
        raw::PRIO_PROCESS => {
            if let Some(thread) = tasks.thread(number) {
                act(&thread);
            }
        }
        raw::PRIO_PGRP => {
            let group = if number == 0 { process.group() } else { number };
            for process in tasks.group(group) {
                each_thread(&process, act);
                points.round();
            }
        }
        raw::PRIO_USER => {
            let real = |process: &Process| process.identity.credentials.lock().user.real;
            let user = if number == 0 { real(process) } else { number };
            for process in tasks.processes() {
                if real(&process) == user {
                    each_thread(&process, act);
                }
                points.round();
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Calls `act` for each thread of a process. No lock is held during the calls.
fn each_thread(process: &Process, act: &mut dyn FnMut(&Arc<Thread>)) {
    let mut next = process.thread_after(None);
    while let Some(thread) = next {
        act(&thread);
        next = process.thread_after(Some(&thread));
    }
}

/// Implements `getpriority`: returns 20 minus the lowest nice value of the selected threads.
///
/// # Errors
/// `EINVAL` for an unknown `which`, `ESRCH` if no thread is selected.
fn getpriority(caller: &Arc<Thread>, which: u32, number: u32) -> CallResult {
    let mut highest = None;
    each_selected(caller, which, number, &mut |thread| {
        highest = highest.max(Some(thread.nice().rank()));
    })?;
    highest.ok_or(Errno::ESRCH)
}

/// Checks whether a caller with `rights` is allowed to change the nice value of a thread from `before` to `after`.
/// `limit` is the `RLIMIT_NICE` of the thread (`set_one_prio`).
///
/// # Errors
/// `EPERM` for a thread of another user; `EACCES` if `after` is lower than `before` and lower than `limit` permits.
fn check(rights: Rights, limit: u64, before: Nice, after: Nice) -> Result<(), Errno> {
    if !rights.may_change() {
        Err(Errno::EPERM)
    } else if after < before && after.rank() > limit && !rights.privileged {
        Err(Errno::EACCES)
    } else {
        Ok(())
    }
}

/// Implements `setpriority`. Changes the selected threads that the caller is allowed to change.
///
/// # Errors
/// `EINVAL` for an unknown `which`, `ESRCH` if no thread is selected, and the last error of [`check`].
fn setpriority(caller: &Arc<Thread>, arguments: &Arguments) -> CallResult {
    let &[which, number, value, ..] = arguments;
    let nice = Nice::nearest(int(value));
    let mut result = Err(Errno::ESRCH);
    each_selected(caller, which as u32, number as u32, &mut |thread| {
        let limit = thread.process.identity.soft_limit(Resource::Nice);
        match check(Rights::of(caller, thread), limit, thread.nice(), nice) {
            Err(error) => result = Err(error),
            Ok(()) => {
                if result == Err(Errno::ESRCH) {
                    result = Ok(0);
                }
                thread.set_nice(nice);
            }
        }
    })?;
    result
}

#[cfg(test)]
mod tests {
    use super::{Errno, Nice, Rights, check};

    #[test]
    fn only_the_privileged_lower_a_value_below_the_limit() {
        for (owns, privileged, limit, before, after, expected) in [
            (true, false, 0, 0, 1, Ok(())),
            (true, false, 0, 5, 5, Ok(())),
            (true, false, 0, 5, 4, Err(Errno::EACCES)),
            (true, false, 16, 5, 4, Ok(())),
            (true, false, 15, 5, 4, Err(Errno::EACCES)),
            (true, true, 0, 5, -20, Ok(())),
            (false, true, 0, 5, -20, Ok(())),
            (false, false, 40, 0, 1, Err(Errno::EPERM)),
        ] {
            let rights = Rights { owns, privileged };
            let (before, after) = (Nice::nearest(before), Nice::nearest(after));
            assert_eq!(check(rights, limit, before, after), expected, "{rights:?}");
        }
    }
}
