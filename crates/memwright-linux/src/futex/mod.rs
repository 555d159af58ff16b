//! Futexes: threads that wait for a word of user memory to change.
//!
//! ```text
//! key.rs      keys: a word of one address space, or of an object that several of them map
//! wait.rs     wait        wake.rs   wake        requeue.rs   wake some, move others to a second word
//! operate.rs  change a second word, wake the waiters of the first, and perhaps of the second
//! release.rs  cleanup for an exiting thread: the robust list, and the word with the thread id
//! ```
//!
//! Waiters are queued in buckets by the hash of their key, in order of arrival. A waiter compares the word and enters
//! the bucket under the bucket's lock. A thread that changes the word afterwards wakes waiters under the same lock, so
//! no wakeup is lost. User memory is read under the lock by an access whose faults are not resolved. After a fault, the
//! lock is released, the page is faulted in, and the operation starts again (like `kernel/futex/` of Linux 7.2).

mod key;
mod operate;
mod release;
mod requeue;
mod wait;
mod wake;

pub(crate) use requeue::RequeueRequest;
pub(crate) use wake::ANY;

use crate::{
    M,
    host::{Clock, UserAccess},
    oom::OomKiller,
    process::Thread,
    sync::{Lock, LockGuard, Rank, lock_with_room_for},
};
use alloc::{sync::Arc, vec::Vec};
use key::Key;
use memwright::object::Object;
use memwright_table::{OutOfMemory, TryPush};

/// Number of buckets; a power of two.
const BUCKETS: usize = 256;

/// One waiting thread.
struct Waiter {
    key: Key,
    /// A wakeup applies to the waiter if the bits of the wakeup intersect with these.
    bits: u32,
    thread: Arc<Thread>,
    /// A reference that keeps the key's object alive, so that its address is not reused.
    object: Option<Arc<dyn Object<M>>>,
}

type Queue = Vec<Waiter>;

/// The waiters of some words, in a separate cache line.
#[repr(align(64))]
struct Bucket {
    waiters: Lock<Queue>,
}

/// All futex waiters of the machine.
pub struct Futexes {
    buckets: Vec<Bucket>,
    user: &'static dyn UserAccess,
    clock: &'static dyn Clock,
    oom: Arc<OomKiller>,
}

impl Futexes {
    /// Creates empty buckets. A thread that cannot wait for lack of memory calls `oom`.
    pub(crate) fn new(
        user: &'static dyn UserAccess,
        clock: &'static dyn Clock,
        oom: Arc<OomKiller>,
    ) -> Self {
        let bucket = || Bucket {
            waiters: Lock::new(Rank::Wait, Vec::new()),
        };
        #[expect(clippy::disallowed_methods, reason = "before any program runs")]
        let buckets = (0..BUCKETS).map(|_| bucket()).collect();
        Self {
            buckets,
            user,
            clock,
            oom,
        }
    }

    fn lock(&self, bucket: u32) -> LockGuard<'_, Queue> {
        self.buckets[bucket as usize].waiters.lock()
    }

    /// Locks a bucket after making room for `more` further waiters.
    fn lock_with_room(
        &self,
        bucket: u32,
        more: usize,
    ) -> Result<LockGuard<'_, Queue>, OutOfMemory> {
        let waiters = &self.buckets[bucket as usize].waiters;
        lock_with_room_for(waiters, more, |queue| queue)
    }

    /// Locks the buckets of two keys; a single lock if both are the same bucket. Both locks have the same rank, so the
    /// lock of the higher bucket is only tried while that of the lower one is held.
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
            // Wait for the higher bucket's lock without holding any lock.
            drop(self.lock(first.max(second)));
        }
    }
}

/// The references of a waiter: a thread to wake, and an object to release.
struct Held {
    thread: Option<Arc<Thread>>,
    object: Option<Arc<dyn Object<M>>>,
}

/// References of waiters that were taken out of a bucket under its lock and are handled after the lock is released.
/// There is always room for one waiter; room for more is allocated while no lock is held.
#[derive(Default)]
struct Left {
    first: Option<Held>,
    others: Vec<Held>,
}

impl Left {
    fn has_room(&self) -> bool {
        self.first.is_none() || self.others.len() < self.others.capacity()
    }

    /// Makes room for `waiters` entries, at most `TOGETHER`. If there is no memory, the list keeps its capacity.
    fn make_room(&mut self, waiters: u32) {
        /// Keeps the list in one block of moderate size.
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

    /// Takes the references of a waiter that leaves its bucket to be woken. The caller has checked that there is room.
    fn take(&mut self, waiter: &mut Waiter) {
        waiter.thread.futex.leave();
        self.add(Held {
            thread: Some(waiter.thread.clone()),
            object: waiter.object.take(),
        });
    }

    /// Wakes the threads and releases the objects. The caller holds no lock.
    fn wake(&mut self) {
        for held in self.first.take().into_iter().chain(self.others.drain(..)) {
            let Held { thread, object } = held;
            if let Some(thread) = thread {
                crate::wait::Waiter::wake(thread);
            }
            drop(object);
        }
    }
}

/// The number of waiters that were taken out of a bucket, and the number that stayed in it for lack of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    now: u32,
    later: u32,
}

/// Takes up to `most` waiters for `key` whose bits intersect with `bits` out of their bucket, as far as `left` has
/// room. The waiters that stay for lack of room count towards `most`.
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
    /// Wakes the waiters that stayed in their bucket for lack of room. Returns how many.
    #[cold]
    fn wake_later(&self, key: Key, bits: u32, mut most: u32, left: &mut Left) -> u32 {
        let mut woken = 0;
        while most > 0 {
            left.make_room(most);
            let taken = take_waiters(&mut self.lock(key.bucket()), key, bits, most, left);
            left.wake();
            woken += taken.now;
            most = taken.later;
        }
        woken
    }
}
