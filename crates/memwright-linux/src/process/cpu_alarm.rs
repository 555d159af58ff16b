//! `ITIMER_VIRTUAL` and `ITIMER_PROF`, which measure the CPU time of a process.

use super::{Process, cpu_clock::Counted};
use crate::{scheduler::UsageSnapshot, signal::Signal, time::Schedule};
use alloc::sync::Arc;
use memwright_table::OutOfMemory;

/// The timers of a process that measure its CPU time. Their times are those of its CPU clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuAlarms {
    user: Schedule,
    all: Schedule,
}

impl CpuAlarms {
    fn timer(&mut self, counted: Counted) -> &mut Schedule {
        match counted {
            Counted::User => &mut self.user,
            Counted::All => &mut self.all,
        }
    }

    /// Returns the nanoseconds of CPU time until the first expiration; `None` if no timer is set.
    pub(super) fn left(&self, used: &UsageSnapshot) -> Option<u64> {
        let left = |timer: &Schedule, counted: Counted| {
            let next = timer.next?;
            Some(next.saturating_sub(counted.of(used)))
        };
        let user = left(&self.user, Counted::User);
        let all = left(&self.all, Counted::All);
        user.into_iter().chain(all).min()
    }

    /// Advances the timers past what is due. Returns the signals of those that have expired.
    pub(super) fn pass(&mut self, used: &UsageSnapshot) -> [Option<Signal>; 2] {
        [
            (Counted::User, Signal::SIGVTALRM),
            (Counted::All, Signal::SIGPROF),
        ]
        .map(|(counted, signal)| {
            let passed = self.timer(counted).pass(counted.of(used));
            (passed > 0).then_some(signal)
        })
    }
}

impl Process {
    /// Returns the nanoseconds of CPU time until a timer expires, and its interval; 0 for a timer that is not set.
    #[must_use]
    pub fn cpu_alarm(&self, counted: Counted) -> (u64, u64) {
        let used = counted.of(&self.cpu_usage());
        let timer = *self.cpu_alarms.lock().timer(counted);
        (timer.remaining(used), timer.interval)
    }

    /// Sets a timer, or clears it if `value` is 0. All times are in nanoseconds. Returns its state before, as
    /// [`cpu_alarm`](Self::cpu_alarm) does.
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

#[cfg(test)]
mod tests {
    use super::{CpuAlarms, Schedule, Signal, UsageSnapshot};

    fn used(user: u64, system: u64) -> UsageSnapshot {
        UsageSnapshot {
            user,
            system,
            ..UsageSnapshot::default()
        }
    }

    #[test]
    fn each_timer_follows_its_own_clock() {
        let mut alarms = CpuAlarms::default();
        assert_eq!(alarms.left(&used(5, 5)), None);
        assert_eq!(alarms.pass(&used(5, 5)), [None, None]);
        alarms = CpuAlarms {
            user: Schedule::new(100, 0),
            all: Schedule::new(150, 50),
        };
        let (virtual_, profile) = (Some(Signal::SIGVTALRM), Some(Signal::SIGPROF));
        for (user, system, left, signals, then) in [
            (10, 0, Some(90), [None, None], Some(90)),
            (99, 50, Some(1), [None, None], Some(1)),
            (99, 51, Some(0), [None, profile], Some(1)),
            (100, 51, Some(0), [virtual_, None], Some(49)),
            (300, 1, Some(0), [None, profile], Some(49)),
        ] {
            let used = used(user, system);
            assert_eq!(alarms.left(&used), left, "{used:?}");
            assert_eq!(alarms.pass(&used), signals, "{used:?}");
            assert_eq!(alarms.left(&used), then, "{used:?}");
        }
    }
}
