//! Wait queues.

use alloc::{
    collections::VecDeque,
    sync::{Arc, Weak},
};
use core::cmp::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::{
    references::References,
    short_list::ShortList,
    sync::{Lock, PausePoints, Rank, assert_may_sleep, lock_with_room},
};
use memwright_table::OutOfMemory;

/// The reason why a wait ended before its condition held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitError {
    /// A signal arrived.
    Interrupted,
    /// The deadline has passed.
    TimedOut,
}

impl WaitError {
    /// Returns the error for a call that can be restarted after a signal: `ERESTARTSYS`, or `EAGAIN` if the deadline
    /// has passed.
    pub fn restart(self) -> Errno {
        match self {
            Self::Interrupted => Errno::ERESTARTSYS,
            Self::TimedOut => Errno::EAGAIN,
        }
    }

    /// Returns the error for a call that is never restarted after a signal handler: `EINTR`, or `EAGAIN` if the
    /// deadline has passed.
    pub fn interrupt(self) -> Errno {
        match self {
            Self::Interrupted => Errno::EINTR,
            Self::TimedOut => Errno::EAGAIN,
        }
    }
}

/// A thread that can wait.
pub trait CanWait {
    /// Waits until `ready` returns true. `ready` is called first, and again after each wakeup of one of `queues`.
    ///
    /// # Locks
    /// The caller holds no lock.
    ///
    /// # Errors
    /// [`WaitError::Interrupted`] if a signal is pending, [`WaitError::TimedOut`] after the deadline.
    fn wait(
        &self,
        queues: &[&WaitQueue],
        deadline: Option<u64>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<(), WaitError>;
}

/// The events that end a wait early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interest {
    /// Any unblocked signal.
    Signals,
    /// Only a fatal signal.
    Fatal,
    /// Only a fatal signal; the thread waits for SIGCONT.
    Continuation,
    /// Only a fatal signal; the thread waits for its tracer.
    Tracer,
}

/// A queue, compared and ordered by its address.
#[derive(Clone, Copy)]
struct Known<'a>(&'a WaitQueue);

impl Known<'_> {
    fn address(self) -> usize {
        core::ptr::from_ref(self.0).addr()
    }
}

impl PartialEq for Known<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for Known<'_> {}

impl PartialOrd for Known<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Known<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

/// The queues of the files that a call waits for. A program can make a call wait in any number of queues.
#[derive(Default)]
pub struct Queues<'a> {
    queues: ShortList<Known<'a>, 4>,
    /// Whether a queue could not be added.
    incomplete: bool,
}

impl<'a> Queues<'a> {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            queues: ShortList::new(),
            incomplete: false,
        }
    }

    /// Adds a queue. If there is no memory for it, [`Self::complete`] fails.
    pub fn add(&mut self, queue: &'a WaitQueue) {
        self.incomplete |= self.queues.try_push(Known(queue)).is_err();
    }

    /// Checks that every queue was added, and removes duplicates, because a thread enters each queue only once.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn complete(&mut self) -> Result<(), OutOfMemory> {
        if self.incomplete {
            return Err(OutOfMemory);
        }
        self.queues.sort_and_deduplicate()
    }

    /// Iterates over the queues.
    pub fn iter(&self) -> impl Iterator<Item = &'a WaitQueue> + Clone {
        self.queues.iter().map(|known| known.0)
    }
}

/// The interface through which a wait queue uses a thread.
pub trait Waiter: Send + Sync {
    /// Makes the thread runnable if it is waiting.
    fn wake(self: Arc<Self>);
}

/// An object, such as an epoll entry, that is notified of the wakeups of a queue.
pub trait Observer: Send + Sync {
    /// Handles a wakeup of the queue. Returns whether it woke a thread.
    ///
    /// # Locks
    /// Called without locks, except those that sleep.
    fn notify(self: Arc<Self>) -> bool;

    /// Returns whether this observer is exclusive (`EPOLLEXCLUSIVE`): once an exclusive observer has woken a thread, a
    /// wakeup skips the other exclusive ones.
    fn is_exclusive(&self) -> bool;
}

/// Number of waiters that are woken, or observers that are notified, between two scheduling points.
const TOGETHER: u32 = 64;

/// Number of references to observers that are dropped between two scheduling points. A queue with fewer references need
/// not be swept before it is dropped.
const SWEPT: usize = 64;

/// Threads that wait for an event, in order of arrival, and observers that are notified of each wakeup.
pub struct WaitQueue {
    /// A description of the event, for reports.
    name: &'static str,
    waiters: Lock<Waiters>,
}

/// The waiters of a queue. Both lists are empty most of the time and then have no memory on the heap.
struct Waiters {
    threads: VecDeque<Arc<dyn Waiter>>,
    observers: References<dyn Observer>,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// Creates a queue without waiters.
    pub const fn new() -> Self {
        Self::named("an event")
    }

    /// Creates a queue without waiters. Reports describe its event as `name`.
    pub const fn named(name: &'static str) -> Self {
        Self {
            name,
            waiters: Lock::new(
                Rank::Wait,
                Waiters {
                    threads: VecDeque::new(),
                    observers: References::new(),
                },
            ),
        }
    }

    /// Returns the description of the event.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Adds a waiter at the end.
    ///
    /// # Errors
    /// [`OutOfMemory`]: programs determine how many threads wait and in how many queues, so growth can fail.
    #[inline]
    pub fn add(&self, thread: Arc<dyn Waiter>) -> Result<(), OutOfMemory> {
        let mut waiters = lock_with_room(&self.waiters, |waiters| &mut waiters.threads)?;
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        waiters.threads.push_back(thread);
        Ok(())
    }

    /// Removes a waiter. Returns false if a waker has already removed it.
    pub fn remove<T: Waiter>(&self, thread: &Arc<T>) -> bool {
        let threads = &mut self.waiters.lock().threads;
        if let Some(position) = threads
            .iter()
            .position(|waiter| core::ptr::addr_eq(Arc::as_ptr(waiter), Arc::as_ptr(thread)))
        {
            let _ = threads.remove(position);
            return true;
        }
        false
    }

    /// Adds an observer, which is notified of every later wakeup until it is freed.
    ///
    /// # Errors
    /// [`OutOfMemory`]: programs determine how many observers a queue has, so growth can fail.
    pub fn observe(&self, observer: Weak<dyn Observer>) -> Result<(), OutOfMemory> {
        let mut waiters = lock_with_room(&self.waiters, |waiters| &mut waiters.observers)?;
        waiters.observers.add(observer)
    }

    /// Removes the references to observers that were freed, with scheduling points in between. Call this before
    /// dropping a queue, which can have any number of observers.
    ///
    /// # Locks
    /// The caller holds no lock except sleeping ones.
    pub fn sweep(&self) {
        if self.waiters.lock().observers.len() < SWEPT {
            return;
        }
        let mut points = PausePoints::every(1);
        let mut from = Some(0);
        while let Some(first) = from {
            let mut gone = [const { None }; SWEPT];
            let mut next = first;
            from = None;
            {
                let observers = &mut self.waiters.lock().observers;
                for slot in &mut gone {
                    let Some((number, observer)) = observers.first_from(next) else {
                        break;
                    };
                    next = number + 1;
                    from = Some(next);
                    if observer.strong_count() == 0 {
                        *slot = observers.remove(number);
                    }
                }
            }
            drop(gone);
            points.round();
        }
    }

    /// Returns whether there are waiters or observers.
    pub fn has_waiters(&self) -> bool {
        let waiters = self.waiters.lock();
        !waiters.threads.is_empty() || !waiters.observers.is_empty()
    }

    /// Wakes the first waiter and notifies the observers. Returns whether a thread was waiting. Other threads can run
    /// before this returns.
    ///
    /// # Locks
    /// The caller holds no lock except sleeping ones.
    pub fn wake_one(&self) -> bool {
        assert_may_sleep();
        let (first, observed) = {
            let mut waiters = self.waiters.lock();
            let first = waiters.threads.pop_front();
            (first, !waiters.observers.is_empty())
        };
        let woken = first.is_some();
        if let Some(thread) = first {
            thread.wake();
        }
        if observed {
            self.notify_observers();
        }
        woken
    }

    /// Wakes every waiter, in order of arrival, and notifies the observers. Other threads can run before this returns.
    ///
    /// # Locks
    /// The caller holds no lock except sleeping ones.
    pub fn wake_all(&self) {
        assert_may_sleep();
        let (threads, observed) = {
            let mut waiters = self.waiters.lock();
            let observed = !waiters.observers.is_empty();
            (core::mem::take(&mut waiters.threads), observed)
        };
        let mut points = PausePoints::every(TOGETHER);
        for thread in threads {
            thread.wake();
            points.round();
        }
        if observed {
            self.notify_observers();
        }
    }

    #[cold]
    fn notify_observers(&self) {
        let mut exclusive_woken = false;
        let mut from = 0;
        let mut points = PausePoints::every(TOGETHER);
        loop {
            points.round();
            let (number, observer) = {
                let waiters = self.waiters.lock();
                match waiters.observers.first_from(from) {
                    Some((number, observer)) => (number, observer.clone()),
                    None => return,
                }
            };
            from = number + 1;
            let Some(observer) = observer.upgrade() else {
                continue;
            };
            let exclusive = observer.is_exclusive();
            if !(exclusive && exclusive_woken) {
                exclusive_woken |= observer.notify() && exclusive;
            }
        }
    }
}
