//! Counts the changes of an object, and wakes the threads that wait for the next change.

use core::sync::atomic::{AtomicU64, Ordering};
use memwright_linux_sched::wait::WaitQueue;

/// A counter of the changes of an object, and the threads that wait for the next change.
pub struct Changes {
    count: AtomicU64,
    /// The threads that wait for the next change. Woken at each change.
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
    /// Returns the number of changes so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Counts a change and wakes the threads that wait for one.
    ///
    /// # Locks
    /// The caller holds no lock except sleeping ones.
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.queue.wake_all();
    }
}
