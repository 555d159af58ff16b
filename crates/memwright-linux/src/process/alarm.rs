//! `ITIMER_REAL` of a process, and the expirations of a process's timers.

use super::Process;
use crate::{
    process::send_to_process,
    scheduler::{Expiry, TimerKey, Timers},
    signal::{Signal, SignalInfo},
};
use alloc::sync::{Arc, Weak};
use memwright_table::OutOfMemory;

/// `ITIMER_REAL` of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alarm {
    /// The timer, while the alarm is set.
    timer: Option<TimerKey>,
    /// Nanoseconds between expirations; 0 for a single one.
    pub interval: u64,
}

impl Alarm {
    /// Returns the nanoseconds until the alarm expires, 0 if it is not set, and the interval.
    pub fn state(&self, now: u64) -> (u64, u64) {
        (self.remaining(now), self.interval)
    }

    /// Returns the nanoseconds until the alarm expires; 0 if it is not set.
    pub fn remaining(&self, now: u64) -> u64 {
        self.timer
            .map_or(0, |(at, _)| at.saturating_sub(now).max(1))
    }
}

impl Process {
    /// Sets the alarm, or clears it if `value` is 0. Both times are in nanoseconds. Returns the old alarm.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the alarm cannot be set; it is then unchanged.
    pub fn set_alarm(self: &Arc<Self>, value: u64, interval: u64) -> Result<Alarm, OutOfMemory> {
        if value > 0 {
            self.tasks.scheduler.make_room_for_timer()?;
        }
        let alarm = &mut self.alarm.lock();
        Ok(self.change_alarm(alarm, value, interval))
    }

    /// Clears the alarm.
    pub(crate) fn clear_alarm(self: &Arc<Self>) {
        self.change_alarm(&mut self.alarm.lock(), 0, 0);
    }

    /// Sets or clears an alarm. The caller has made room for the timer. Returns the old alarm.
    fn change_alarm(self: &Arc<Self>, alarm: &mut Alarm, value: u64, interval: u64) -> Alarm {
        let timers = self.tasks.scheduler;
        let old = core::mem::take(alarm);
        if let Some(timer) = old.timer {
            timers.remove_timer(timer);
        }
        if value > 0 {
            let at = timers.now().saturating_add(value);
            let this: Weak<Self> = Arc::downgrade(self);
            alarm.timer = timers.add_timer(at, this).ok();
            alarm.interval = interval;
        }
        old
    }

    /// Handles the expiration of the timer `key`, if it is the alarm's. Returns whether it is.
    fn expire_alarm(self: &Arc<Self>, key: TimerKey) -> bool {
        {
            let mut alarm = self.alarm.lock();
            // Another CPU may have set the alarm again after this timer expired.
            if alarm.timer != Some(key) {
                return false;
            }
            alarm.timer = None;
            let interval = alarm.interval;
            self.change_alarm(&mut alarm, interval, interval);
        }
        send_to_process(self, SignalInfo::kernel(Signal::SIGALRM));
        true
    }
}

impl Expiry for Process {
    fn expire(self: Arc<Self>, key: TimerKey) {
        if !self.expire_alarm(key) {
            self.check_cpu_time();
        }
    }
}
