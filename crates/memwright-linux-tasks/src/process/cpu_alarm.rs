//! The state of `ITIMER_VIRTUAL` and `ITIMER_PROF`, which measure the CPU time of a process.

use super::Counted;
use memwright_linux_abi::signal::Signal;
use memwright_linux_sched::{scheduler::UsageSnapshot, time::Schedule};

/// `ITIMER_VIRTUAL` (`user`) and `ITIMER_PROF` (`all`) of a process. Their expirations are values of the CPU time that
/// they measure, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuAlarms {
    user: Schedule,
    all: Schedule,
}

impl CpuAlarms {
    pub(super) fn timer(&mut self, counted: Counted) -> &mut Schedule {
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

    /// Advances each timer past the expirations that are due at the CPU time `used`. Returns the signals of the timers
    /// that have expired.
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
