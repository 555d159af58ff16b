//! The wait of a thread for a futex.

use core::sync::atomic::{AtomicU32, Ordering};
use memwright_linux_base::sync::{Lock, Rank};

/// The scope of a futex operation: the threads whose operations on the same word affect one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads of one address space (`FUTEX_PRIVATE_FLAG`).
    Private,
    /// All threads that map the memory.
    Shared,
}

/// Identifies a word: keys are equal for the same word and differ for different words (`union futex_key` of Linux 7.2,
/// `include/linux/futex.h`). As on Linux, the keys of a private and a shared call always differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FutexKey {
    /// A word in an address space, in a private call.
    Private {
        /// The address of the address space's structure.
        space: usize,
        /// The address of the word.
        address: u64,
    },
    /// A word of anonymous memory in an address space, in a shared call.
    Anonymous {
        /// The address of the address space's structure.
        space: usize,
        /// The address of the word.
        address: u64,
    },
    /// A word of an object, regardless of the address at which the object is mapped.
    Object {
        /// The address of the object's structure.
        object: usize,
        /// The offset of the word in bytes.
        position: u64,
    },
}

/// Identifies a waiter in its bucket: its word, and a number that increases with each addition to the bucket.
pub type FutexPosition = (FutexKey, u64);

/// The place where a thread waits: the number of a bucket, and the position in this bucket. While the thread does not
/// wait, the place has no bucket.
///
/// The place changes under the lock of the bucket. A thread that wakes the waiter clears the bucket's number before the
/// wakeup.
#[derive(Debug)]
pub struct FutexPlace {
    bucket: AtomicU32,
    /// The position in the present or the last bucket. Read and written under the lock of that bucket.
    position: Lock<Option<FutexPosition>>,
}

impl Default for FutexPlace {
    fn default() -> Self {
        Self {
            bucket: AtomicU32::new(0),
            position: Lock::new(Rank::Leaf, None),
        }
    }
}

impl FutexPlace {
    /// Records that the thread waits at a position in a bucket.
    ///
    /// # Locks
    /// The caller holds the lock of the bucket.
    pub fn enter(&self, bucket: u32, position: FutexPosition) {
        *self.position.lock() = Some(position);
        self.bucket.store(bucket + 1, Ordering::SeqCst);
    }

    /// Records that the thread no longer waits.
    ///
    /// # Locks
    /// The caller holds the lock of the bucket.
    pub fn leave(&self) {
        self.bucket.store(0, Ordering::SeqCst);
    }

    /// Returns the position of a waiting thread in its bucket. The caller holds the lock of the bucket.
    pub fn position(&self) -> Option<FutexPosition> {
        *self.position.lock()
    }

    /// Returns whether the thread waits for a word.
    pub fn is_waiting(&self) -> bool {
        self.bucket().is_some()
    }

    /// Returns the number of the bucket in which the thread waits; `None` if it does not wait.
    pub fn bucket(&self) -> Option<u32> {
        self.bucket.load(Ordering::SeqCst).checked_sub(1)
    }
}

/// The arguments of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRequest {
    /// The address of the word.
    pub address: u64,
    /// The value that the word must have for the thread to wait.
    pub value: u32,
    /// The bits of the wait: only a wakeup with at least one of these bits wakes the thread.
    pub bits: u32,
    /// The scope of the wait: which threads can wake this one.
    pub scope: Scope,
    /// Deadline in nanoseconds by the host's clock; `None` for no deadline.
    pub deadline: Option<u64>,
}
