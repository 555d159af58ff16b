//! `ITIMER_REAL` of a process.

use memwright_linux_sched::scheduler::TimerKey;

/// `ITIMER_REAL` of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alarm {
    /// The timer, while the alarm is set.
    pub(super) timer: Option<TimerKey>,
    /// Nanoseconds between expirations; 0 for a single expiration.
    pub interval: u64,
}

impl Alarm {
    /// Returns the nanoseconds until the alarm expires (0 if it is not set), and its interval in nanoseconds.
    pub fn state(&self, now: u64) -> (u64, u64) {
        (self.remaining(now), self.interval)
    }

    /// Returns the nanoseconds until the alarm expires; 0 if it is not set.
    pub fn remaining(&self, now: u64) -> u64 {
        self.timer
            .map_or(0, |(at, _)| at.saturating_sub(now).max(1))
    }
}
