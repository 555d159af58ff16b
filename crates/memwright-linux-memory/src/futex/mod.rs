//! Futexes, by which threads wait until a word of user memory changes.
//!
//! ```text
//! key.rs      keys: a word of one address space, or of an object that several of them map
//! queue.rs    the waiters of one bucket, by word and in order of arrival
//! wait.rs     wait        wake.rs   wake        requeue.rs   wake some, move others to a second word
//! operate.rs  change a second word, wake the waiters of the first, and perhaps of the second
//! release.rs  cleanup for an exiting thread: the robust list, and the word with the thread id
//! ```
//!
//! Waiters are queued in buckets by the hash of their key. The waiters of one word are in order of arrival. A waiter
//! compares the word and enters the bucket under the bucket's lock. A thread that changes the word afterwards wakes
//! waiters under the same lock, so no wakeup is lost. User memory is read under the lock by an access whose faults are
//! not resolved. After a fault, the lock is released, the page is faulted in, and the operation starts again (like
//! `kernel/futex/` of Linux 7.2).

mod key;
mod operate;
mod queue;
mod release;
mod requeue;
mod wait;
mod wake;

pub use requeue::RequeueRequest;
pub use wake::ANY;

use crate::oom::OomKiller;
use alloc::{sync::Arc, vec::Vec};
use memwright::object::Object;
use memwright_linux_abi::{
    M,
    host::{Clock, UserAccess},
};
use memwright_linux_base::sync::{Lock, LockGuard, Rank, lock_with_room};
use memwright_linux_tasks::process::{FutexKey, Thread};
use memwright_table::{OutOfMemory, TryPush};
use queue::{Choice, Queue, Waiter};

/// The number of buckets, which is a power of two.
const BUCKETS: usize = 256;

/// A bucket, which contains the waiters of all words whose keys have the same hash. Each bucket has its own cache line.
#[repr(align(64))]
struct Bucket {
    waiters: Lock<Queue>,
}

/// The buckets with all futex waiters of the machine.
pub struct Futexes {
    buckets: Vec<Bucket>,
    user: &'static dyn UserAccess,
    clock: &'static dyn Clock,
    oom: Arc<OomKiller>,
}

impl Futexes {
    /// Creates empty buckets. `oom` is called if a thread cannot wait because there is no memory for its entry in a
    /// bucket.
    pub fn new(
        user: &'static dyn UserAccess,
        clock: &'static dyn Clock,
        oom: Arc<OomKiller>,
    ) -> Self {
        let bucket = || Bucket {
            waiters: Lock::new(Rank::Wait, Queue::default()),
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

    /// Locks the bucket after making room in it for at least one further waiter.
    fn lock_with_room(&self, bucket: u32) -> Result<LockGuard<'_, Queue>, OutOfMemory> {
        let waiters = &self.buckets[bucket as usize].waiters;
        lock_with_room(waiters, Queue::list)
    }

    /// Locks two buckets, or takes one lock if both numbers are the same. All buckets have the same lock rank, so while
    /// the lock of the lower bucket is held, the lock of the higher bucket is only tried.
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

/// The references of a waiter that was removed from its bucket: the thread, if it must still be woken, and the object,
/// which must still be released.
struct Held {
    thread: Option<Arc<Thread>>,
    object: Option<Arc<dyn Object<M>>>,
}

/// The maximum number of waiters that are removed while a bucket stays locked. `Left` allocates room for at most this
/// number.
const TOGETHER: u32 = 1024;

/// References of waiters that were removed from a bucket under its lock. They are handled after the lock is released.
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

    /// Makes room for `waiters` entries, of which there are at most `TOGETHER`. If there is no memory, the list keeps
    /// its capacity.
    fn make_room(&mut self, waiters: u32) {
        let _ = self.others.try_make_room(waiters as usize);
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

    /// Adds a waiter that was removed from its bucket, to be woken later. The caller has checked that there is room.
    fn take(&mut self, waiter: Waiter) {
        waiter.thread.futex.leave();
        self.add(Held {
            thread: Some(waiter.thread),
            object: waiter.object,
        });
    }

    /// Wakes the threads and releases the objects. The caller holds no lock.
    fn wake(&mut self) {
        for held in self.first.take().into_iter().chain(self.others.drain(..)) {
            let Held { thread, object } = held;
            if let Some(thread) = thread {
                memwright_linux_sched::wait::Waiter::wake(thread);
            }
            drop(object);
        }
    }
}

/// The waiters of one word that a call has not woken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    choice: Choice,
    /// The maximum number of waiters that the call may still wake.
    most: u32,
    /// The number of waiters that remained in the bucket because `Left` was full, counted up to a limit. The caller
    /// makes room for this number and takes waiters again.
    stay: u32,
}

impl Wanted {
    fn new(key: FutexKey, bits: u32, most: u32) -> Self {
        let choice = Choice {
            key,
            bits,
            until: u64::MAX,
        };
        Self {
            choice,
            most,
            stay: 0,
        }
    }

    /// Removes the wanted waiters from their bucket in order of arrival while `left` has room. Returns the number of
    /// removed waiters. A later call does not remove waiters that arrived after the first call.
    fn take(&mut self, queue: &mut Queue, left: &mut Left) -> u32 {
        self.choice.until = self.choice.until.min(queue.next());
        self.stay = 0;
        let (mut from, mut taken) = (0, 0);
        while taken < self.most {
            let Some((number, _)) = queue.first(&self.choice, from) else {
                break;
            };
            if !left.has_room() {
                let most = TOGETHER.min(self.most - taken);
                self.stay = queue.count(&self.choice, number, most);
                break;
            }
            if let Some((_, waiter)) = queue.remove((self.choice.key, number)) {
                left.take(waiter);
                taken += 1;
            }
            from = number + 1;
        }
        self.most -= taken;
        taken
    }
}

impl Futexes {
    /// Wakes the waiters that remained in their bucket because `left` was full. Returns the number of woken waiters.
    #[cold]
    fn wake_later(&self, wanted: &mut Wanted, left: &mut Left) -> u32 {
        let mut woken = 0;
        while wanted.stay > 0 {
            left.make_room(wanted.stay);
            let bucket = key::bucket_of(wanted.choice.key);
            woken += wanted.take(&mut self.lock(bucket), left);
            left.wake();
        }
        woken
    }
}
