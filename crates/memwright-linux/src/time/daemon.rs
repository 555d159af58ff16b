//! Background work of the kernel: khugepaged, ksmd, NUMA balancing, background reclaim.

use super::NextLook;
use crate::{
    scheduler::{Expiry, Timers},
    sync::{Lock, Rank},
};
use alloc::sync::Arc;

/// Work that the kernel does in steps for as long as there is a reason. It is a deadline, not a thread: the CPU on which
/// the deadline passes executes the next step, whether that CPU is idle or runs a program, so the work progresses even
/// if all CPUs are busy.
pub(crate) struct Daemon {
    next: NextLook,
    step: Lock<Option<Arc<dyn Expiry>>>,
}

impl Daemon {
    /// Creates a daemon that does nothing before it is [started](Self::start).
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            next: NextLook::none(),
            step: Lock::new(Rank::Leaf, None),
        }
    }

    /// Sets the step that each deadline executes. The step [sets](Self::set) the next deadline.
    pub(crate) fn start(&self, step: Arc<dyn Expiry>) {
        *self.step.lock() = Some(step);
    }

    /// Returns whether there is a deadline. It may be one that is just expiring.
    pub(crate) fn is_set(&self) -> bool {
        self.next.is_set()
    }

    /// Replaces the deadline by one after `wait` nanoseconds; `None` for no deadline. `wait` is called under the lock of
    /// the deadline. If there is no memory for the deadline, there is none until the next call.
    pub(crate) fn set(&self, timers: &dyn Timers, wait: impl FnOnce() -> Option<u64>) {
        let step = self.step.lock().clone();
        if let Some(step) = step {
            let _ = self.next.set(timers, &Arc::downgrade(&step), wait);
        }
    }
}
