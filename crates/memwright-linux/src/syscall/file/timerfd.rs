//! The `timerfd` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::{boxed::Box, sync::Arc};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    abi::{SECOND, Timespec},
    abi_struct,
    errno::Errno,
};
use memwright_linux_sched::{scheduler::Scheduler, time::Schedule};
use memwright_linux_tasks::process::Thread;
use memwright_linux_vfs::fs::{OpenFile, timerfd::TimerFile};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_timerfd_create,
        "timerfd_create",
        &[Kind::Int, Kind::Hex],
        handler!(timerfd_create, scheduler),
    ),
    real(
        raw::__NR_timerfd_settime,
        "timerfd_settime",
        &[Kind::Fd, Kind::Hex, Kind::In(32), Kind::Out(32)],
        handler!(timerfd_settime),
    ),
    real(
        raw::__NR_timerfd_gettime,
        "timerfd_gettime",
        &[Kind::Fd, Kind::Out(32)],
        handler!(timerfd_gettime),
    ),
];

abi_struct! {
    /// `struct __kernel_itimerspec` of `linux/time_types.h`.
    pub struct TimerSetting {
        /// Interval between expirations; 0 for a timer that expires once.
        pub interval: Timespec,
        /// Time of the first expiration; 0 disarms the timer.
        pub value: Timespec,
    }
}

impl TimerSetting {
    /// Creates the setting from the time until the next expiration and the interval, both in nanoseconds.
    #[must_use]
    pub const fn from_nanoseconds((left, interval): (u64, u64)) -> Self {
        Self {
            interval: Timespec::from_nanoseconds(interval),
            value: Timespec::from_nanoseconds(left),
        }
    }

    /// Returns the schedule of a timer with this setting, in the host's clock. `offset` is the number of nanoseconds by
    /// which the timer's clock is ahead of the host's clock.
    ///
    /// # Errors
    /// `EINVAL` for times that are negative or not normalised.
    pub fn schedule(&self, now: u64, absolute: bool, offset: u64) -> Result<Schedule, Errno> {
        let value = self.value.to_nanoseconds().ok_or(Errno::EINVAL)?;
        let interval = self.interval.to_nanoseconds().ok_or(Errno::EINVAL)?;
        Ok(match (value, absolute) {
            (0, _) => Schedule {
                next: None,
                interval,
            },
            (_, true) => Schedule::new(value.saturating_sub(offset), interval),
            (_, false) => Schedule::new(now.saturating_add(value), interval),
        })
    }
}

/// Returns the number of nanoseconds by which a clock is ahead of the host's clock. `epoch` is the time of the boot in
/// seconds since 1970.
///
/// The machine is never suspended, and its time is never set. So each alarm clock shows the same time as the clock
/// without alarms, and the boot-time clock the same time as the monotonic clock.
///
/// # Errors
/// `EINVAL` for other clocks.
pub fn clock_offset(epoch: u64, clock: u64) -> Result<u64, Errno> {
    match clock as u32 {
        raw::CLOCK_REALTIME | raw::CLOCK_REALTIME_ALARM => Ok(epoch * SECOND),
        raw::CLOCK_MONOTONIC | raw::CLOCK_BOOTTIME | raw::CLOCK_BOOTTIME_ALARM => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

fn timerfd_create(
    current: &Current<'_>,
    scheduler: &'static Scheduler<Thread>,
    arguments: &Arguments,
) -> CallResult {
    let flags = arguments[1] as u32;
    if flags & !(raw::TFD_CLOEXEC | raw::TFD_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let vfs = current.vfs();
    let offset = clock_offset(vfs.epoch, arguments[0])?;
    current.check_heap()?;
    current.caller().check_open_files()?;
    let file = Box::new(TimerFile::new(scheduler, offset));
    let status = raw::O_RDWR | flags & raw::O_NONBLOCK;
    let open = vfs.mounts.open_anonymous(vfs, "[timerfd]", status, file);
    current.caller().add_descriptor(open, flags)
}

fn open_timer(current: &Current<'_>, number: u64) -> Result<Arc<OpenFile>, Errno> {
    current.files().get_usable(int(number))
}

fn timerfd_settime(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, flags, new, old, ..] = arguments;
    let new: TimerSetting = current.user.read_value(new)?;
    let known = raw::TFD_TIMER_ABSTIME | raw::TFD_TIMER_CANCEL_ON_SET;
    if flags as u32 & !known != 0 {
        return Err(Errno::EINVAL);
    }
    // `TFD_TIMER_CANCEL_ON_SET` has no effect, because the time is never set.
    let absolute = flags as u32 & raw::TFD_TIMER_ABSTIME != 0;
    let open = open_timer(current, number)?;
    let timer = open.as_kind::<TimerFile>().ok_or(Errno::EINVAL)?;
    let now = current.now();
    let before = timer.set(new.schedule(now, absolute, timer.clock_offset)?)?;
    current
        .user
        .write_optional(old, &TimerSetting::from_nanoseconds(before))?;
    Ok(0)
}

fn timerfd_gettime(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = open_timer(current, arguments[0])?;
    let timer = open.as_kind::<TimerFile>().ok_or(Errno::EINVAL)?;
    let setting = TimerSetting::from_nanoseconds(timer.get());
    current.user.write_value(arguments[1], &setting).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_schedules() {
        let setting = |value: i64, interval: i64| TimerSetting {
            interval: Timespec {
                seconds: 0,
                nanoseconds: interval,
            },
            value: Timespec {
                seconds: 0,
                nanoseconds: value,
            },
        };
        let at = |next, interval| Ok(Schedule { next, interval });
        for (value, interval, absolute, offset, expected) in [
            (0, 5, false, 0, at(None, 5)),
            (7, 5, false, 1000, at(Some(107), 5)),
            (1007, 0, true, 1000, at(Some(7), 0)),
            (7, 0, true, 1000, at(Some(0), 0)),
            (-1, 0, false, 0, Err(Errno::EINVAL)),
            (0, 1_000_000_000, false, 0, Err(Errno::EINVAL)),
        ] {
            assert_eq!(
                setting(value, interval).schedule(100, absolute, offset),
                expected
            );
        }
    }
}
