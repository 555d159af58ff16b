//! System calls on clocks and sleeping.

use crate::{
    abi::{SECOND, Timespec, Timeval},
    abi_struct,
    context::{Arguments, CallResult, Context},
    errno::Errno,
    process::RestartBlock,
    syscall::{call::int, file::poll::poll_or_restart},
    wait::WaitError,
};
use linux_raw_sys::general as raw;

/// The time that a clock measures.
enum Clock {
    /// Since boot.
    Monotonic,
    /// Since 1970.
    Real,
    /// The process's CPU time.
    Process,
    /// The thread's CPU time.
    Thread,
}

fn clock(id: u64) -> Result<Clock, Errno> {
    Ok(match id as u32 {
        raw::CLOCK_REALTIME | raw::CLOCK_REALTIME_COARSE | raw::CLOCK_TAI => Clock::Real,
        raw::CLOCK_MONOTONIC
        | raw::CLOCK_MONOTONIC_RAW
        | raw::CLOCK_MONOTONIC_COARSE
        | raw::CLOCK_BOOTTIME => Clock::Monotonic,
        raw::CLOCK_PROCESS_CPUTIME_ID => Clock::Process,
        raw::CLOCK_THREAD_CPUTIME_ID => Clock::Thread,
        _ => return Err(Errno::EINVAL),
    })
}

fn read(context: &Context<'_>, clock: &Clock) -> u64 {
    let kernel = context.kernel;
    match clock {
        Clock::Monotonic => kernel.host.now(),
        Clock::Real => kernel.vfs.real_time(),
        Clock::Process => {
            let usage = context.process().total_usage();
            usage.user + usage.system
        }
        Clock::Thread => {
            let usage = kernel.scheduler.usage_of(context.thread);
            usage.user + usage.system
        }
    }
}

/// Implements `clock_gettime`.
pub fn clock_gettime(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let now = read(context, &clock(arguments[0])?);
    context
        .user
        .write_value(arguments[1], &Timespec::from_nanoseconds(now))
        .map(|()| 0)
}

/// Implements `clock_getres`: always one nanosecond.
pub fn clock_getres(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    clock(arguments[0])?;
    context
        .user
        .write_optional(arguments[1], &Timespec::from_nanoseconds(1))
        .map(|()| 0)
}

/// Implements `gettimeofday`.
pub fn gettimeofday(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let now = Timeval::from_nanoseconds(context.kernel.vfs.real_time());
    context.user.write_optional(arguments[0], &now)?;
    // `struct timezone` for UTC.
    context.user.write_optional(arguments[1], &0u64)?;
    Ok(0)
}

/// Implements `time`.
pub fn time(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let now = context.kernel.vfs.real_time() / SECOND;
    context.user.write_optional(arguments[0], &now)?;
    Ok(now)
}

/// Sleeps until a time of the host's clock. If a relative sleep is interrupted, stores the remaining time.
fn sleep_until(context: &Context<'_>, deadline: u64, remaining: Option<u64>) -> CallResult {
    match context.wait_until(&[], Some(deadline), || None::<()>) {
        Err(WaitError::TimedOut) | Ok(()) => Ok(0),
        Err(WaitError::Interrupted) => match remaining {
            None => Err(Errno::ERESTARTNOHAND),
            Some(address) => {
                let left = deadline.saturating_sub(context.kernel.host.now());
                context
                    .user
                    .write_optional(address, &Timespec::from_nanoseconds(left))?;
                let block = RestartBlock::Sleep {
                    deadline,
                    remaining: address,
                };
                *context.thread.restart.lock() = Some(block);
                Err(Errno::ERESTART_RESTARTBLOCK)
            }
        },
    }
}

/// Implements `nanosleep`.
pub fn nanosleep(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let wanted: Timespec = context.user.read_value(arguments[0])?;
    let length = wanted.to_nanoseconds().ok_or(Errno::EINVAL)?;
    let deadline = context.kernel.host.now().saturating_add(length);
    sleep_until(context, deadline, Some(arguments[1]))
}

/// Implements `clock_nanosleep`.
pub fn clock_nanosleep(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [id, flags, wanted, remaining, ..] = *arguments;
    let offset = match clock(id)? {
        Clock::Monotonic => 0,
        Clock::Real => context.kernel.manifest.epoch * SECOND,
        Clock::Process | Clock::Thread => return Err(Errno::EOPNOTSUPP),
    };
    let wanted: Timespec = context.user.read_value(wanted)?;
    let length = wanted.to_nanoseconds().ok_or(Errno::EINVAL)?;
    if flags & u64::from(raw::TIMER_ABSTIME) != 0 {
        return sleep_until(context, length.saturating_sub(offset), None);
    }
    let deadline = context.kernel.host.now().saturating_add(length);
    sleep_until(context, deadline, Some(remaining))
}

/// Implements `restart_syscall`: continues the interrupted call.
pub fn restart_syscall(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    let block = context.thread.restart.lock().take();
    match block {
        Some(RestartBlock::Sleep {
            deadline,
            remaining,
        }) => sleep_until(context, deadline, Some(remaining)),
        Some(RestartBlock::Futex(request)) => {
            context.with_space(|space| context.kernel.futexes.wait(context.thread, space, request))
        }
        Some(RestartBlock::Poll {
            descriptors,
            count,
            deadline,
        }) => poll_or_restart(context, descriptors, count, deadline),
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

fn described(alarm: crate::process::Alarm, now: u64) -> IntervalTimer {
    IntervalTimer {
        interval: Timeval::from_nanoseconds(alarm.interval),
        value: Timeval::from_nanoseconds(alarm.remaining(now)),
    }
}

/// Checks the number of an interval timer. Only `ITIMER_REAL` is supported.
fn check_timer(which: u64) -> Result<(), Errno> {
    if int(which) == raw::ITIMER_REAL as i32 {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Implements `getitimer`.
pub fn getitimer(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    check_timer(arguments[0])?;
    let alarm = *context.process().alarm.lock();
    let timer = described(alarm, context.kernel.host.now());
    context.user.write_value(arguments[1], &timer).map(|()| 0)
}

/// Implements `setitimer`.
pub fn setitimer(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [which, new, old, ..] = *arguments;
    check_timer(which)?;
    let new: IntervalTimer = context.user.read_optional(new)?.unwrap_or_default();
    let value = new.value.to_nanoseconds().ok_or(Errno::EINVAL)?;
    let interval = new.interval.to_nanoseconds().ok_or(Errno::EINVAL)?;
    let now = context.kernel.host.now();
    let before = context.process().set_alarm(value, interval)?;
    context.user.write_optional(old, &described(before, now))?;
    Ok(0)
}

/// Implements `alarm`.
pub fn alarm(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let now = context.kernel.host.now();
    let seconds = u64::from(arguments[0] as u32);
    let before = context.process().set_alarm(seconds * SECOND, 0)?;
    // Round to the nearest second, but not to 0 while the alarm is set.
    let left = before.remaining(now);
    let rounded = (left + SECOND / 2) / SECOND;
    Ok(if left > 0 { rounded.max(1) } else { 0 })
}
