//! Failure injection for frame allocations.

use core::sync::atomic::Ordering;

use super::frames::Frames;
use crate::machine::Machine;

impl<M: Machine> Frames<M> {
    /// Makes one allocation fail: the next `count` allocations are not affected, and the one after them fails. `None`
    /// cancels a failure that has not happened yet.
    pub fn fail_after(&self, count: Option<u64>) {
        self.fail_after
            .store(count.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns whether failure injection makes this allocation fail.
    #[inline]
    pub(super) fn is_to_fail(&self) -> bool {
        self.fail_after.load(Ordering::Relaxed) != u64::MAX && self.count_down()
    }

    #[cold]
    fn count_down(&self) -> bool {
        self.choose_nothing();
        self.fail_after
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
                u64::MAX => None,
                0 => Some(u64::MAX),
                left => Some(left - 1),
            })
            .is_ok_and(|left| left == 0)
    }
}
