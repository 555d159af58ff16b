//! The wait of a thread for a futex.

use core::sync::atomic::{AtomicU32, Ordering};

/// The threads that can wait for a word and wake its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Threads of one address space (`FUTEX_PRIVATE_FLAG`).
    Private,
    /// All threads that map the memory.
    Shared,
}

/// The number of the bucket in which a thread waits, or none.
///
/// It changes under the lock of that bucket. A thread that wakes the waiter clears it before the wakeup.
#[derive(Debug, Default)]
pub struct FutexPlace(AtomicU32);

impl FutexPlace {
    pub(crate) fn enter(&self, bucket: u32) {
        self.0.store(bucket + 1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Returns whether the thread waits for a word.
    pub(crate) fn is_waiting(&self) -> bool {
        self.bucket().is_some()
    }

    pub(crate) fn bucket(&self) -> Option<u32> {
        self.0.load(Ordering::SeqCst).checked_sub(1)
    }
}

/// The arguments of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRequest {
    /// The address of the word.
    pub(crate) address: u64,
    /// The value that the word must have for the thread to wait.
    pub(crate) value: u32,
    /// A wakeup applies to the thread if the bits of the wakeup intersect with these.
    pub(crate) bits: u32,
    /// The threads that can wake the thread.
    pub(crate) scope: Scope,
    /// Deadline by the host's clock.
    pub(crate) deadline: Option<u64>,
}
