//! Background work of the kernel: khugepaged, ksmd, NUMA balancing, background reclaim.

use super::NextLook;
use crate::scheduler::{Expiry, Timers};
use alloc::sync::Weak;

/// The timer of background work that the kernel does in steps. Each step determines whether and when the next one is
/// due. The work has no thread of its own: the CPU on which the deadline passes executes the next step, whether that
/// CPU is idle or runs a program. So the work makes progress even if all CPUs are busy.
pub struct Daemon {
    next: NextLook,
    step: Weak<dyn Expiry>,
    timers: &'static dyn Timers,
}

impl Daemon {
    /// Creates the timer, which is not set. Each expiration executes `step`, which [sets](Self::set) the next deadline.
    #[must_use]
    pub fn new(step: Weak<dyn Expiry>, timers: &'static dyn Timers) -> Self {
        Self {
            next: NextLook::none(),
            step,
            timers,
        }
    }

    /// Returns whether a deadline is set. It may have just passed.
    pub fn is_set(&self) -> bool {
        self.next.is_set()
    }

    /// Replaces the deadline. `wait` returns the time until the new deadline in nanoseconds, or `None` for no deadline,
    /// and is called under the lock of the deadline. If there is no memory for the timer, no deadline is set until the
    /// next call.
    pub fn set(&self, wait: impl FnOnce() -> Option<u64>) {
        let _ = self.next.set(self.timers, &self.step, wait);
    }
}
