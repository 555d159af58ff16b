//! POSIX timers: `timer_create` and the calls that use its timers (Linux 7.2 `kernel/time/posix-timers.c`).

use crate::{
    context::{Arguments, CallResult},
    syscall::call::{Kind, SystemCall, int, real},
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    abi::{SECOND, Timespec},
    abi_struct,
    errno::Errno,
    signal::Signal,
};
use memwright_linux_sched::{scheduler::Timers, time::Schedule};
use memwright_linux_tasks::process::{CpuClock, Notice, Thread, TimerClock};
use memwright_linux_vfs::user::UserMemory;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_timer_create,
        "timer_create",
        &[Kind::Int, Kind::In(64), Kind::Out(4)],
        |context, arguments| {
            context.current.check_heap()?;
            let epoch = context.current.vfs().epoch;
            timer_create(
                context.current.user,
                context.current.thread,
                epoch,
                arguments,
            )
        },
    ),
    real(
        raw::__NR_timer_settime,
        "timer_settime",
        &[Kind::Int, Kind::Hex, Kind::In(32), Kind::Out(32)],
        |context, arguments| {
            let timers = context.scheduler();
            timer_settime(
                context.current.user,
                context.current.thread,
                timers,
                arguments,
            )
        },
    ),
    real(
        raw::__NR_timer_gettime,
        "timer_gettime",
        &[Kind::Int, Kind::Out(32)],
        |context, arguments| {
            let timers = context.scheduler();
            timer_gettime(
                context.current.user,
                context.current.thread,
                timers,
                arguments,
            )
        },
    ),
    real(
        raw::__NR_timer_getoverrun,
        "timer_getoverrun",
        &[Kind::Int],
        |context, &[id, ..]| {
            let timer = context.current.process().posix_timer(int(id))?;
            Ok(timer.overrun() as u64)
        },
    ),
    real(
        raw::__NR_timer_delete,
        "timer_delete",
        &[Kind::Int],
        |context, &[id, ..]| context.current.process().delete_timer(int(id)).map(|()| 0),
    ),
];

abi_struct! {
    /// `struct itimerspec`.
    pub struct Setting {
        /// `it_interval`.
        pub interval: Timespec,
        /// `it_value`.
        pub value: Timespec,
    }
}

abi_struct! {
    /// `struct sigevent`.
    pub struct Event {
        /// `sigev_value`.
        pub value: u64,
        /// `sigev_signo`.
        pub signal: u32,
        /// `sigev_notify`.
        pub notify: u32,
        /// `sigev_notify_thread_id`.
        pub thread: u32,
        /// Unused.
        pub rest: [u32; 11],
    }
}

impl Setting {
    fn of((value, interval): (u64, u64)) -> Self {
        Self {
            interval: Timespec::from_nanoseconds(interval),
            value: Timespec::from_nanoseconds(value),
        }
    }
}

/// Returns the clock with number `id`, if it can have timers. `epoch` is the time of the boot in seconds since 1970.
///
/// # Errors
/// `EOPNOTSUPP` for a clock without timers, such as the CPU time of another process; `EINVAL` for an unknown clock.
fn clock(id: u64, epoch: u64, caller: &Arc<Thread>) -> Result<TimerClock, Errno> {
    match id as u32 {
        raw::CLOCK_REALTIME | raw::CLOCK_TAI => Ok(TimerClock::Host(epoch * SECOND)),
        raw::CLOCK_MONOTONIC | raw::CLOCK_BOOTTIME => Ok(TimerClock::Host(0)),
        raw::CLOCK_MONOTONIC_RAW
        | raw::CLOCK_REALTIME_COARSE
        | raw::CLOCK_MONOTONIC_COARSE
        | raw::CLOCK_REALTIME_ALARM
        | raw::CLOCK_BOOTTIME_ALARM => Err(Errno::EOPNOTSUPP),
        _ => {
            let clock = CpuClock::find(id, caller).ok_or(Errno::EINVAL)?;
            if clock.is_of(&caller.process) {
                Ok(TimerClock::Cpu(clock))
            } else {
                Err(Errno::EOPNOTSUPP)
            }
        }
    }
}

/// Decodes the notification that an expiration sends. `find` returns the thread of the calling process that has a given
/// id.
///
/// # Errors
/// `EINVAL` for an unknown notification, signal or thread.
fn notice(event: &Event, find: impl FnOnce(u32) -> Option<Arc<Thread>>) -> Result<Notice, Errno> {
    let signal = || Signal::new(event.signal.into()).ok_or(Errno::EINVAL);
    match event.notify {
        raw::SIGEV_NONE => Ok(Notice::None),
        raw::SIGEV_SIGNAL | raw::SIGEV_THREAD => Ok(Notice::Process(signal()?)),
        raw::SIGEV_THREAD_ID => {
            let thread = find(event.thread).ok_or(Errno::EINVAL)?;
            Ok(Notice::Thread(signal()?, Arc::downgrade(&thread)))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Implements `timer_create`. `epoch` is the time of the boot in seconds since 1970.
fn timer_create(
    user: UserMemory<'_>,
    thread: &Arc<Thread>,
    epoch: u64,
    arguments: &Arguments,
) -> CallResult {
    let &[number, event, id, ..] = arguments;
    let process = &thread.process;
    let event: Option<Event> = user.read_optional(event)?;
    let clock = clock(number, epoch, thread)?;
    let find = |id| {
        let found = process.tasks.thread(id)?;
        Arc::ptr_eq(&found.process, process).then_some(found)
    };
    let (notice, value) = match &event {
        Some(event) => (notice(event, find)?, Some(event.value)),
        None => (Notice::Process(Signal::SIGALRM), None),
    };
    let made = process.create_timer(notice, value, clock)?;
    if let Err(error) = user.write_value(id, &made) {
        process.delete_timer(made)?;
        return Err(error);
    }
    Ok(0)
}

/// Returns the schedule, in the host's clock, of a timer with this setting. A value of 0 disarms the timer. `offset` is
/// the number of nanoseconds by which the timer's clock is ahead of the host's clock.
fn schedule(setting: &Setting, offset: u64, absolute: bool, now: u64) -> Result<Schedule, Errno> {
    let value = setting.value.to_nanoseconds().ok_or(Errno::EINVAL)?;
    let interval = setting.interval.to_nanoseconds().ok_or(Errno::EINVAL)?;
    Ok(match (value, absolute) {
        (0, _) => Schedule::default(),
        (value, true) => Schedule::new(value.saturating_sub(offset), interval),
        (value, false) => Schedule::new(now.saturating_add(value), interval),
    })
}

/// Implements `timer_settime`.
fn timer_settime(
    user: UserMemory<'_>,
    thread: &Thread,
    timers: &dyn Timers,
    arguments: &Arguments,
) -> CallResult {
    let &[id, flags, new, old, ..] = arguments;
    if new == 0 {
        return Err(Errno::EINVAL);
    }
    let new: Setting = user.read_value(new)?;
    let absolute = flags as u32 & raw::TIMER_ABSTIME != 0;
    schedule(&new, 0, absolute, 0)?;
    let timer = thread.process.posix_timer(int(id))?;
    let now = timer.clock.now(timers).ok_or(Errno::ESRCH)?;
    let schedule = schedule(&new, timer.clock.ahead(), absolute, now)?;
    let before = timer.set(timers, schedule, now)?;
    user.write_optional(old, &Setting::of(before))?;
    Ok(0)
}

/// Implements `timer_gettime`.
fn timer_gettime(
    user: UserMemory<'_>,
    thread: &Thread,
    timers: &dyn Timers,
    arguments: &Arguments,
) -> CallResult {
    let &[id, setting, ..] = arguments;
    let timer = thread.process.posix_timer(int(id))?;
    let now = Setting::of(timer.get(timers));
    user.write_value(setting, &now).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_times_of_the_clock() {
        let time = |seconds, nanoseconds| Timespec {
            seconds,
            nanoseconds,
        };
        let of = |value, interval| Setting { interval, value };
        let none = time(0, 0);
        for (setting, absolute, expected) in [
            (of(none, time(5, 0)), false, Ok(Schedule::default())),
            (of(time(0, 7), none), false, Ok(Schedule::new(107, 0))),
            (of(time(0, 57), time(0, 3)), true, Ok(Schedule::new(7, 3))),
            (of(time(0, 7), none), true, Ok(Schedule::new(0, 0))),
            (of(time(-1, 0), none), false, Err(Errno::EINVAL)),
            (
                of(time(1, 0), time(0, 1_000_000_000)),
                false,
                Err(Errno::EINVAL),
            ),
        ] {
            assert_eq!(
                schedule(&setting, 50, absolute, 100),
                expected,
                "{setting:?}"
            );
        }
    }

    #[test]
    fn events_say_who_is_notified() {
        let event = |notify, signal| Event {
            notify,
            signal,
            ..Event::default()
        };
        let decoded = |notify, signal| notice(&event(notify, signal), |_| None).is_ok();
        assert!(decoded(raw::SIGEV_NONE, 0));
        assert!(decoded(raw::SIGEV_SIGNAL, 1) && decoded(raw::SIGEV_THREAD, 64));
        assert!(!decoded(raw::SIGEV_SIGNAL, 0) && !decoded(raw::SIGEV_SIGNAL, 65));
        assert!(!decoded(raw::SIGEV_THREAD_ID, 1) && !decoded(3, 1));
    }
}
