//! System calls for clocks, sleeping and interval timers.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::file::poll::poll_or_restart,
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    abi::{SECOND, Timespec, Timeval},
    abi_struct,
    errno::Errno,
};
use memwright_linux_memory::{futex::Futexes, oom::OomKiller};
use memwright_linux_sched::{scheduler::Scheduler, wait::WaitError};
use memwright_linux_tasks::process::{Counted, CpuClock, RestartBlock, Thread, wait_for};

/// The time that a clock measures.
enum Clock {
    /// Time since boot.
    Monotonic,
    /// Time since 1970.
    Real,
    /// The CPU time of a process or thread.
    Cpu(CpuClock),
}

fn clock(id: u64, caller: &Arc<Thread>) -> Result<Clock, Errno> {
    Ok(match id as u32 {
        raw::CLOCK_REALTIME | raw::CLOCK_REALTIME_COARSE | raw::CLOCK_TAI => Clock::Real,
        raw::CLOCK_MONOTONIC
        | raw::CLOCK_MONOTONIC_RAW
        | raw::CLOCK_MONOTONIC_COARSE
        | raw::CLOCK_BOOTTIME => Clock::Monotonic,
        _ => Clock::Cpu(CpuClock::find(id, caller).ok_or(Errno::EINVAL)?),
    })
}

/// Implements `clock_gettime`.
pub fn clock_gettime(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let now = match clock(arguments[0], current.thread)? {
        Clock::Monotonic => current.now(),
        Clock::Real => current.vfs().real_time(),
        // The process of the clock may have exited since the lookup.
        Clock::Cpu(clock) => clock.time().ok_or(Errno::EINVAL)?,
    };
    current
        .user
        .write_value(arguments[1], &Timespec::from_nanoseconds(now))
        .map(|()| 0)
}

/// Implements `clock_getres`. The resolution is always one nanosecond.
pub fn clock_getres(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    clock(arguments[0], current.thread)?;
    current
        .user
        .write_optional(arguments[1], &Timespec::from_nanoseconds(1))
        .map(|()| 0)
}

/// Implements `gettimeofday`.
pub fn gettimeofday(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let now = Timeval::from_nanoseconds(current.vfs().real_time());
    current.user.write_optional(arguments[0], &now)?;
    // Write a `struct timezone` of zeros, which means UTC.
    current.user.write_optional(arguments[1], &0u64)?;
    Ok(0)
}

/// Implements `time`.
pub fn time(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let now = current.vfs().real_time() / SECOND;
    current.user.write_optional(arguments[0], &now)?;
    Ok(now)
}

/// Sleeps until `deadline`, a time of the host's clock. If a signal interrupts a relative sleep, stores the remaining
/// time at `remaining`.
fn sleep_until(current: &Current<'_>, deadline: u64, remaining: Option<u64>) -> CallResult {
    match current.wait_until(&[], Some(deadline), || None::<()>) {
        Err(WaitError::TimedOut) | Ok(()) => Ok(0),
        Err(WaitError::Interrupted) => match remaining {
            None => Err(Errno::ERESTARTNOHAND),
            Some(address) => {
                let left = deadline.saturating_sub(current.now());
                current
                    .user
                    .write_optional(address, &Timespec::from_nanoseconds(left))?;
                let block = RestartBlock::Sleep {
                    deadline,
                    remaining: address,
                };
                *current.thread.restart.lock() = Some(block);
                Err(Errno::ERESTART_RESTARTBLOCK)
            }
        },
    }
}

/// Implements `nanosleep`.
pub fn nanosleep(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let wanted: Timespec = current.user.read_value(arguments[0])?;
    let length = wanted.to_nanoseconds().ok_or(Errno::EINVAL)?;
    let deadline = current.now().saturating_add(length);
    sleep_until(current, deadline, Some(arguments[1]))
}

/// Implements `clock_nanosleep`.
pub fn clock_nanosleep(
    current: &Current<'_>,
    scheduler: &Scheduler<Thread>,
    arguments: &Arguments,
) -> CallResult {
    let [id, flags, wanted, remaining, ..] = *arguments;
    let clock = clock(id, current.thread)?;
    let wanted: Timespec = current.user.read_value(wanted)?;
    let length = wanted.to_nanoseconds().ok_or(Errno::EINVAL)?;
    let absolute = flags & u64::from(raw::TIMER_ABSTIME) != 0;
    let offset = match clock {
        Clock::Monotonic => 0,
        Clock::Real => current.vfs().epoch * SECOND,
        Clock::Cpu(clock) if clock.is_threads() => return Err(Errno::EOPNOTSUPP),
        Clock::Cpu(clock) => {
            return sleep_by_cpu_time(current, scheduler, &clock, length, absolute, remaining);
        }
    };
    if absolute {
        return sleep_until(current, length.saturating_sub(offset), None);
    }
    let deadline = current.now().saturating_add(length);
    sleep_until(current, deadline, Some(remaining))
}

/// Sleeps until a process has used `length` nanoseconds of CPU time, in total or from now on. If a signal interrupts
/// the sleep, stores the remaining time.
fn sleep_by_cpu_time(
    current: &Current<'_>,
    scheduler: &Scheduler<Thread>,
    clock: &CpuClock,
    length: u64,
    absolute: bool,
    remaining: u64,
) -> CallResult {
    let cpus = scheduler.all_cpus().len().into();
    let start = if absolute {
        0
    } else {
        clock.time().ok_or(Errno::EINVAL)?
    };
    let end = start.saturating_add(length);
    loop {
        let left = match clock.time() {
            Some(now) if now < end => end - now,
            Some(_) | None => return Ok(0),
        };
        let deadline = current.now().saturating_add(wait_for(left, cpus));
        match current.wait_until(&[], Some(deadline), || None::<()>) {
            Err(WaitError::TimedOut) | Ok(()) => {}
            Err(WaitError::Interrupted) if absolute => return Err(Errno::ERESTARTNOHAND),
            Err(WaitError::Interrupted) => {
                let left = end.saturating_sub(clock.time().unwrap_or(end));
                let left = Timespec::from_nanoseconds(left);
                current.user.write_optional(remaining, &left)?;
                return Err(Errno::EINTR);
            }
        }
    }
}

/// Implements `restart_syscall`: continues the call that a signal interrupted.
pub fn restart_syscall(
    current: &Current<'_>,
    futexes: &Futexes,
    oom: &OomKiller,
    _arguments: &Arguments,
) -> CallResult {
    let block = current.thread.restart.lock().take();
    match block {
        Some(RestartBlock::Sleep {
            deadline,
            remaining,
        }) => sleep_until(current, deadline, Some(remaining)),
        Some(RestartBlock::Futex(request)) => {
            current.with_space(|space| futexes.wait(current.thread, space, request))
        }
        Some(RestartBlock::Poll {
            descriptors,
            count,
            deadline,
        }) => poll_or_restart(current, oom, descriptors, count, deadline),
        None => Err(Errno::EINTR),
    }
}

abi_struct! {
    /// `struct itimerval`.
    pub struct IntervalTimer {
        /// `it_interval`.
        pub interval: Timeval,
        /// `it_value`.
        pub value: Timeval,
    }
}

impl IntervalTimer {
    fn of((value, interval): (u64, u64)) -> Self {
        Self {
            interval: Timeval::from_nanoseconds(interval),
            value: Timeval::from_nanoseconds(value),
        }
    }
}

/// The clock of an interval timer.
#[derive(Clone, Copy, Debug)]
enum TimedBy {
    /// The host's clock (`ITIMER_REAL`).
    Host,
    /// The CPU time of the process (`ITIMER_VIRTUAL` and `ITIMER_PROF`).
    Cpu(Counted),
}

/// Decodes the number of an interval timer.
fn timed_by(which: u64) -> Result<TimedBy, Errno> {
    match which as u32 {
        raw::ITIMER_REAL => Ok(TimedBy::Host),
        raw::ITIMER_VIRTUAL => Ok(TimedBy::Cpu(Counted::User)),
        raw::ITIMER_PROF => Ok(TimedBy::Cpu(Counted::All)),
        _ => Err(Errno::EINVAL),
    }
}

/// Implements `getitimer`.
pub fn getitimer(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let process = current.process();
    let now = match timed_by(arguments[0])? {
        TimedBy::Host => process.alarm.lock().state(current.now()),
        TimedBy::Cpu(counted) => process.cpu_alarm(counted),
    };
    let timer = IntervalTimer::of(now);
    current.user.write_value(arguments[1], &timer).map(|()| 0)
}

/// Implements `setitimer`.
pub fn setitimer(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [which, new, old, ..] = *arguments;
    let timed_by = timed_by(which)?;
    let new: IntervalTimer = current.user.read_optional(new)?.unwrap_or_default();
    let value = new.value.to_nanoseconds().ok_or(Errno::EINVAL)?;
    let interval = new.interval.to_nanoseconds().ok_or(Errno::EINVAL)?;
    let (process, now) = (current.process(), current.now());
    let before = match timed_by {
        TimedBy::Host => process.set_alarm(value, interval)?.state(now),
        TimedBy::Cpu(counted) => process.set_cpu_alarm(counted, value, interval)?,
    };
    current
        .user
        .write_optional(old, &IntervalTimer::of(before))?;
    Ok(0)
}

/// Implements `alarm`.
pub fn alarm(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let now = current.now();
    let seconds = u64::from(arguments[0] as u32);
    let before = current.process().set_alarm(seconds * SECOND, 0)?;
    // Round to the nearest second, but return at least 1 while the alarm is set: 0 means that no alarm was set.
    let left = before.remaining(now);
    let rounded = (left + SECOND / 2) / SECOND;
    Ok(if left > 0 { rounded.max(1) } else { 0 })
}
