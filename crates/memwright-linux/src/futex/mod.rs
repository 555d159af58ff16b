//! Futexes: threads that wait for a word of user memory to change.
//!
//! ```text
//! key.rs      which word is meant: of one address space, or of an object that several map
//! wait.rs     wait        wake.rs   wake        requeue.rs   wake some, move others to a second word
//! operate.rs  change a second word, wake the waiters of the first, and perhaps of the second
//! release.rs  what an ending thread leaves: the list of robust locks, the word with its id
//! ```
//!
//! Waiters stand in buckets by the hash of their key, first come first. A waiter compares the word
//! and enters the bucket under the bucket's lock, and whoever changes the word wakes under the same
//! lock afterwards: no wake is lost between the two. User memory is read there by an access that
//! is not resolved if it faults; the lock is then released, the page made accessible, and all of it
//! tried again (`kernel/futex/` of Linux 7.2 does the same).

mod key;
mod operate;
mod release;
mod requeue;
mod wait;
mod wake;

pub(crate) use key::Scope;
pub(crate) use operate::wake_and_operate;
pub(crate) use release::release;
pub(crate) use requeue::{RequeueRequest, requeue};
pub use wait::WaitRequest;
pub(crate) use wait::{FutexPlace, wait};
pub(crate) use wake::{ANY, wake};

use crate::{
    M,
    kernel::Kernel,
    process::Thread,
    sync::{Lock, LockGuard, Rank},
};
use alloc::{sync::Arc, vec::Vec};
use key::Key;
use memwright::object::Object;

/// How many buckets there are. A power of two.
const BUCKETS: usize = 256;

/// One waiting thread.
struct Waiter {
    key: Key,
    /// Wakes reach it whose bits meet these.
    bits: u32,
    thread: Arc<Thread>,
    /// Keeps the key's object, so that no other takes its place.
    object: Option<Arc<dyn Object<M>>>,
}

type Queue = Vec<Waiter>;

/// The waiters of some words, in a cache line of their own.
#[repr(align(64))]
struct Bucket {
    waiters: Lock<Queue>,
}

/// Every waiter of the machine.
pub struct Futexes {
    buckets: Vec<Bucket>,
}

impl Default for Futexes {
    fn default() -> Self {
        Self::new()
    }
}

impl Futexes {
    /// No waiters.
    pub fn new() -> Self {
        let bucket = || Bucket {
            waiters: Lock::new(Rank::Wait, Vec::new()),
        };
        Self {
            buckets: (0..BUCKETS).map(|_| bucket()).collect(),
        }
    }

    fn lock(&self, bucket: u32) -> LockGuard<'_, Queue> {
        self.buckets[bucket as usize].waiters.lock()
    }

    /// Locks the buckets of two keys; the second only if it is another. The lower one is waited for,
    /// the higher one never with the lower one held: both have one rank.
    fn lock_two(
        &self,
        first: u32,
        second: u32,
    ) -> (LockGuard<'_, Queue>, Option<LockGuard<'_, Queue>>) {
        if first == second {
            return (self.lock(first), None);
        }
        loop {
            let low = self.lock(first.min(second));
            if let Some(high) = self.buckets[first.max(second) as usize].waiters.try_lock() {
                return if first < second {
                    (low, Some(high))
                } else {
                    (high, Some(low))
                };
            }
            drop(low);
            // Wait for the other one as for any lock.
            drop(self.lock(first.max(second)));
        }
    }
}

/// What leaves a bucket under its lock and is dealt with after it: threads to wake, objects to let go.
#[derive(Default)]
struct Left {
    first: Option<Arc<Thread>>,
    others: Vec<Arc<Thread>>,
    objects: Vec<Arc<dyn Object<M>>>,
}

impl Left {
    /// Takes what a waiter holds that leaves its bucket to be woken.
    fn take(&mut self, waiter: &mut Waiter) {
        waiter.thread.futex.leave();
        if let Some(object) = waiter.object.take() {
            self.objects.push(object);
        }
        let thread = waiter.thread.clone();
        match self.first {
            None => self.first = Some(thread),
            Some(_) => self.others.push(thread),
        }
    }

    /// Wakes the threads. No lock is held.
    fn wake(self, kernel: &Kernel) {
        for thread in self.first.iter().chain(&self.others) {
            kernel.scheduler.wake(kernel, thread);
        }
    }
}

/// Takes up to `most` waiters for `key` whose bits meet `bits` out of their bucket; returns how many.
fn take_waiters(queue: &mut Queue, key: Key, bits: u32, most: u32, left: &mut Left) -> u32 {
    let mut taken = 0;
    if !queue.is_empty() {
        queue.retain_mut(|waiter| {
            let wanted = taken < most && waiter.key == key && waiter.bits & bits != 0;
            if wanted {
                left.take(waiter);
                taken += 1;
            }
            !wanted
        });
    }
    taken
}
