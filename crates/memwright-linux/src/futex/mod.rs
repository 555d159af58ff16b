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
    sync::{Lock, LockGuard, Rank, lock_with_room_for},
};
use alloc::{sync::Arc, vec::Vec};
use key::Key;
use memwright::object::Object;
use memwright_table::{OutOfMemory, TryPush};

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
        #[expect(clippy::disallowed_methods, reason = "before any program runs")]
        let buckets = (0..BUCKETS).map(|_| bucket()).collect();
        Self { buckets }
    }

    fn lock(&self, bucket: u32) -> LockGuard<'_, Queue> {
        self.buckets[bucket as usize].waiters.lock()
    }

    /// Locks a bucket that has room for so many more.
    fn lock_with_room(
        &self,
        bucket: u32,
        more: usize,
    ) -> Result<LockGuard<'_, Queue>, OutOfMemory> {
        let waiters = &self.buckets[bucket as usize].waiters;
        lock_with_room_for(waiters, more, |queue| queue)
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

/// What a waiter held: a thread to wake, an object to let go.
struct Held {
    thread: Option<Arc<Thread>>,
    object: Option<Arc<dyn Object<M>>>,
}

/// What leaves a bucket under its lock and is dealt with after it. There is always room for one waiter's; for more it is
/// made where no lock is held.
#[derive(Default)]
struct Left {
    first: Option<Held>,
    others: Vec<Held>,
}

impl Left {
    fn has_room(&self) -> bool {
        self.first.is_none() || self.others.len() < self.others.capacity()
    }

    /// Makes room for so many, if there is memory.
    fn make_room(&mut self, waiters: u32) {
        /// The list stays in one block of moderate size.
        const TOGETHER: usize = 1024;
        let _ = self.others.try_make_room((waiters as usize).min(TOGETHER));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the callers see that there is room"
    )]
    fn add(&mut self, held: Held) {
        match self.first {
            None => self.first = Some(held),
            Some(_) => self.others.push(held),
        }
    }

    /// Takes what a waiter holds that leaves its bucket to be woken. There is room.
    fn take(&mut self, waiter: &mut Waiter) {
        waiter.thread.futex.leave();
        self.add(Held {
            thread: Some(waiter.thread.clone()),
            object: waiter.object.take(),
        });
    }

    /// Wakes the threads and lets go of the objects. No lock is held.
    fn wake(&mut self, kernel: &Kernel) {
        for held in self.first.take().into_iter().chain(self.others.drain(..)) {
            let Held { thread, object } = held;
            if let Some(thread) = thread {
                kernel.scheduler.wake(kernel, &thread);
            }
            drop(object);
        }
    }
}

/// How many waiters were taken out of a bucket, and how many more would have been if there had been room for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    now: u32,
    later: u32,
}

/// Takes up to `most` waiters for `key` whose bits meet `bits` out of their bucket.
fn take_waiters(queue: &mut Queue, key: Key, bits: u32, most: u32, left: &mut Left) -> Taken {
    let mut taken = Taken::default();
    if !queue.is_empty() {
        queue.retain_mut(|waiter| {
            let wanted = taken.now + taken.later < most;
            if !(wanted && waiter.key == key && waiter.bits & bits != 0) {
                return true;
            }
            if !left.has_room() {
                taken.later += 1;
                return true;
            }
            left.take(waiter);
            taken.now += 1;
            false
        });
    }
    taken
}

impl Futexes {
    /// Wakes the waiters that were left in their bucket for want of room; returns how many.
    #[cold]
    fn wake_later(
        &self,
        kernel: &Kernel,
        key: Key,
        bits: u32,
        mut most: u32,
        left: &mut Left,
    ) -> u32 {
        let mut woken = 0;
        while most > 0 {
            left.make_room(most);
            let taken = take_waiters(&mut self.lock(key.bucket()), key, bits, most, left);
            left.wake(kernel);
            woken += taken.now;
            most = taken.later;
        }
        woken
    }
}
