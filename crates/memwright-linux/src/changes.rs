//! Something that changes now and then, and those who wait for that.

use crate::{kernel::Kernel, wait::WaitQueue};
use core::sync::atomic::{AtomicU64, Ordering};

/// How often something changed.
pub struct Changes {
    count: AtomicU64,
    /// Woken at each change.
    pub queue: WaitQueue,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            queue: WaitQueue::named("a change"),
        }
    }
}

impl Changes {
    /// How often it changed up to now.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Counts a change and wakes the threads that wait for one. The caller holds no lock but those that sleep.
    pub fn note(&self, kernel: &Kernel) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.queue.wake_all(kernel);
    }
}
