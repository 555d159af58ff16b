//! Nice values, and the time slice of each.

use super::TIME_SLICE;

/// The maximum time slice, which threads of nice -11 and lower have. It ensures that no thread keeps others waiting for
/// more than 10 time slices of nice 0.
const LONGEST: u64 = 10 * TIME_SLICE;

/// The nice value of a thread, from -20 to 19. A thread with a lower value gets more time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nice(i8);

impl Nice {
    /// Returns the nice value nearest to `value`.
    #[must_use]
    pub fn nearest(value: i32) -> Self {
        Self(value.clamp(-20, 19) as i8)
    }

    /// Returns the number.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0.into()
    }

    /// Returns the value as `getpriority` and `RLIMIT_NICE` represent it: from 1 for nice 19 to 40 for nice -20.
    #[must_use]
    pub fn rank(self) -> u64 {
        (20 - self.number()).unsigned_abs().into()
    }

    /// Returns the time slice in nanoseconds. Each step of the nice value changes the slice by a factor of 1.25, as it
    /// changes a thread's weight on Linux (`sched_prio_to_weight` in `kernel/sched/core.c` of Linux 7.2). So threads
    /// that run in turn get CPU time in proportion to these weights.
    pub(super) fn slice(self) -> u64 {
        let steps = 0..self.0.unsigned_abs();
        let (times, of) = if self.0 < 0 { (5, 4) } else { (4, 5) };
        steps
            .fold(TIME_SLICE, |slice, _| slice * times / of)
            .min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Nice, TIME_SLICE};

    #[test]
    fn values_outside_of_the_range_become_the_nearest() {
        for (value, expected) in [
            (i32::MIN, -20),
            (-21, -20),
            (-20, -20),
            (0, 0),
            (19, 19),
            (20, 19),
            (i32::MAX, 19),
        ] {
            assert_eq!(Nice::nearest(value).number(), expected);
        }
        assert_eq!(Nice::nearest(-20).rank(), 40);
        assert_eq!(Nice::default().rank(), 20);
        assert_eq!(Nice::nearest(19).rank(), 1);
    }

    #[test]
    fn a_slice_is_as_long_as_the_weight_says() {
        for (value, slice) in [
            (0, TIME_SLICE),
            (1, TIME_SLICE * 4 / 5),
            (-1, TIME_SLICE * 5 / 4),
            (5, 1_310_720),
            (-5, 12_207_031),
            (19, 57_644),
            (-10, 37_252_900),
            (-11, LONGEST),
            (-20, LONGEST),
        ] {
            assert_eq!(Nice::nearest(value).slice(), slice, "{value}");
        }
    }
}
