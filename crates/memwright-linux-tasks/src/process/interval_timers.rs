//! The interval timers of a process (`setitimer`), and their expirations.

use super::{Alarm, Counted, Process};
use crate::process::send_to_process;
use alloc::sync::{Arc, Weak};
use memwright_linux_abi::signal::{Signal, SignalInfo};
use memwright_linux_sched::{
    scheduler::{Expiry, TimerKey, Timers},
    time::Schedule,
};
use memwright_table::OutOfMemory;

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
    pub fn clear_alarm(self: &Arc<Self>) {
        self.change_alarm(&mut self.alarm.lock(), 0, 0);
    }

    /// Sets the alarm, or clears it if `value` is 0. The caller has [made room](Timers::make_room_for_timer) for the
    /// timer. Returns the old alarm.
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

    /// Handles the expiration of the timer `key` if this is the alarm's timer. Returns whether it is.
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

    /// Returns the state of the timer that measures the kind `counted` of CPU time: the nanoseconds of CPU time until
    /// it expires, and its interval in nanoseconds. Both are 0 if the timer is not set.
    #[must_use]
    pub fn cpu_alarm(&self, counted: Counted) -> (u64, u64) {
        let used = counted.of(&self.cpu_usage());
        let timer = *self.cpu_alarms.lock().timer(counted);
        (timer.remaining(used), timer.interval)
    }

    /// Sets the timer that measures the kind `counted` of CPU time, or clears it if `value` is 0. All times are in
    /// nanoseconds. Returns its previous state, as from [`cpu_alarm`](Self::cpu_alarm).
    ///
    /// # Errors
    /// [`OutOfMemory`]; the timer is then unchanged.
    pub fn set_cpu_alarm(
        self: &Arc<Self>,
        counted: Counted,
        value: u64,
        interval: u64,
    ) -> Result<(u64, u64), OutOfMemory> {
        let used = self.cpu_usage();
        let now = counted.of(&used);
        let new = match value {
            0 => Schedule::default(),
            value => Schedule::new(now.saturating_add(value), interval),
        };
        self.measure_cpu_time();
        let mut before = Schedule::default();
        let set = self.set_cpu_deadline(|| {
            before = core::mem::replace(self.cpu_alarms.lock().timer(counted), new);
            self.next_cpu_look(&used)
        });
        if let Err(error) = set {
            *self.cpu_alarms.lock().timer(counted) = before;
            return Err(error);
        }
        Ok((before.remaining(now), before.interval))
    }
}

impl Expiry for Process {
    fn expire(self: Arc<Self>, key: TimerKey) {
        if !self.expire_alarm(key) {
            self.check_cpu_time();
        }
    }
}
