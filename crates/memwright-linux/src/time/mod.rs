//! Clocks and interval timers.

mod next_look;
mod schedule;

pub(crate) use next_look::NextLook;
pub use schedule::Schedule;

use crate::{
    kernel::Kernel,
    process::Process,
    scheduler::{TimerAction, TimerKey},
    signal::{Signal, SignalInfo, send_to_process},
};
use alloc::sync::Arc;
use memwright_table::OutOfMemory;

/// `ITIMER_REAL` of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alarm {
    /// The timer, while the alarm is set.
    pub timer: Option<TimerKey>,
    /// Nanoseconds between expirations; 0 for a single one.
    pub interval: u64,
}

impl Alarm {
    /// Returns the nanoseconds until the alarm expires; 0 if it is not set.
    pub fn remaining(&self, now: u64) -> u64 {
        self.timer
            .map_or(0, |(at, _)| at.saturating_sub(now).max(1))
    }
}

/// Sets the alarm of a process, or clears it if `value` is 0. Both times are in nanoseconds. Returns the old alarm.
///
/// # Errors
/// [`OutOfMemory`] if the alarm cannot be set; it is then unchanged.
pub fn set_alarm(
    kernel: &Kernel,
    process: &Arc<Process>,
    value: u64,
    interval: u64,
) -> Result<Alarm, OutOfMemory> {
    if value > 0 {
        kernel.scheduler.make_room_for_timer(kernel)?;
    }
    let alarm = &mut process.alarm.lock();
    Ok(change_alarm(kernel, process, alarm, value, interval))
}

/// Clears the alarm of a process.
pub fn clear_alarm(kernel: &Kernel, process: &Arc<Process>) {
    change_alarm(kernel, process, &mut process.alarm.lock(), 0, 0);
}

/// Sets or clears an alarm. The caller has made room for the timer. Returns the old alarm.
fn change_alarm(
    kernel: &Kernel,
    process: &Arc<Process>,
    alarm: &mut Alarm,
    value: u64,
    interval: u64,
) -> Alarm {
    let old = core::mem::take(alarm);
    if let Some(timer) = old.timer {
        kernel.scheduler.remove_timer(kernel, timer);
    }
    if value > 0 {
        let at = kernel.host.now().saturating_add(value);
        let action = TimerAction::Alarm(process.clone());
        alarm.timer = kernel.scheduler.add_timer(kernel, at, action).ok();
        alarm.interval = interval;
    }
    old
}

/// Handles the expiration of a process's alarm.
pub(crate) fn expire(kernel: &Kernel, process: &Arc<Process>, key: TimerKey) {
    {
        let mut alarm = process.alarm.lock();
        // Another CPU may have set the alarm again after this timer expired.
        if alarm.timer != Some(key) {
            return;
        }
        alarm.timer = None;
        let interval = alarm.interval;
        change_alarm(kernel, process, &mut alarm, interval, interval);
    }
    send_to_process(kernel, process, SignalInfo::kernel(Signal::SIGALRM));
}

/// The action of a timer that belongs neither to a waiting thread nor to an alarm.
pub trait Expiry: Send + Sync {
    /// Handles an expiration. The timer may have been set again since it expired, so the callee checks what is due.
    ///
    /// # Locks
    /// Called without locks.
    fn expire(self: Arc<Self>, kernel: &Kernel);
}

impl Kernel {
    /// Returns the real time in nanoseconds since 1970.
    pub fn real_time(&self) -> u64 {
        self.manifest.epoch * crate::abi::SECOND + self.host.now()
    }
}
