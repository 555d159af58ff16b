//! Background work of the kernel: khugepaged, ksmd, NUMA balancing, background reclaim.

use super::NextLook;
use crate::scheduler::{Expiry, Timers};
use alloc::sync::Weak;

/// The timer of background work that the kernel does in steps for as long as there is a reason. The work has no thread:
/// the CPU on which the deadline passes executes the next step, whether that CPU is idle or runs a program, so the work
/// progresses even if all CPUs are busy.
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

    /// Returns whether there is a deadline. It may be one that is just expiring.
    pub fn is_set(&self) -> bool {
        self.next.is_set()
    }

    /// Replaces the deadline by one after `wait` nanoseconds; `None` for no deadline. `wait` is called under the lock
    /// of the deadline. If there is no memory for the deadline, there is none until the next call.
    pub fn set(&self, wait: impl FnOnce() -> Option<u64>) {
        let _ = self.next.set(self.timers, &self.step, wait);
    }
}
