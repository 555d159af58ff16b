//! The expirations of a timer, independent of any clock.

/// The expirations of one timer: a first one, and one after each interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The time of the next expiration in nanoseconds; `None` while the timer is not set.
    pub next: Option<u64>,
    /// Nanoseconds between expirations; 0 for a single one.
    pub interval: u64,
}

impl Schedule {
    /// Creates a timer that expires at `first`, and then after each interval.
    #[must_use]
    pub const fn new(first: u64, interval: u64) -> Self {
        Self {
            next: Some(first),
            interval,
        }
    }

    /// Advances the schedule past the expirations up to `now`. Returns the number of these expirations.
    pub fn pass(&mut self, now: u64) -> u64 {
        let Some(next) = self.next.filter(|&next| next <= now) else {
            return 0;
        };
        if self.interval == 0 {
            self.next = None;
            return 1;
        }
        let passed = (now - next) / self.interval + 1;
        self.next = Some(next.saturating_add(passed.saturating_mul(self.interval)));
        passed
    }

    /// Returns the nanoseconds until the next expiration, at least 1; 0 for a timer that is not set.
    #[must_use]
    pub fn remaining(&self, now: u64) -> u64 {
        self.next.map_or(0, |next| next.saturating_sub(now).max(1))
    }

    /// Returns whether the next expiration is due.
    #[must_use]
    pub fn is_due(&self, now: u64) -> bool {
        self.next.is_some_and(|next| next <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn expirations_are_counted() {
        for (next, interval, now, passed, then) in [
            (Some(100), 0, 99, 0, Some(100)),
            (Some(100), 0, 100, 1, None),
            (Some(100), 10, 99, 0, Some(100)),
            (Some(100), 10, 100, 1, Some(110)),
            (Some(100), 10, 135, 4, Some(140)),
            (None, 10, 135, 0, None),
            (Some(0), u64::MAX, u64::MAX, 2, Some(u64::MAX)),
        ] {
            let mut schedule = Schedule { next, interval };
            assert_eq!(schedule.is_due(now), passed > 0);
            assert_eq!(schedule.pass(now), passed);
            assert_eq!(schedule.next, then);
        }
    }

    #[test]
    fn a_set_timer_never_shows_zero() {
        let schedule = Schedule::new(100, 0);
        for (now, left) in [(0, 100), (99, 1), (100, 1), (200, 1)] {
            assert_eq!(schedule.remaining(now), left);
        }
        assert_eq!(Schedule::default().remaining(5), 0);
    }
}
