//! Wait queues.

use crate::{
    errno::Errno,
    kernel::Kernel,
    paged::Paged,
    process::Thread,
    sweep::Sweep,
    sync::{Lock, PausePoints, Rank, assert_may_sleep, lock_with_room},
};
use alloc::{
    collections::VecDeque,
    sync::{Arc, Weak},
};
use core::cmp::Ordering;
use memwright_table::{OutOfMemory, Rising};

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitError {
    /// A signal arrived.
    Interrupted,
    /// The deadline passed.
    TimedOut,
}

impl WaitError {
    /// The error of a call that is restarted after a signal and has no timeout
    /// (`ERESTARTSYS`; a deadline becomes `EAGAIN`).
    pub fn restart(self) -> Errno {
        match self {
            Self::Interrupted => Errno::ERESTARTSYS,
            Self::TimedOut => Errno::EAGAIN,
        }
    }

    /// The error of a call that is never restarted after a handler ran
    /// (`EINTR`; a deadline becomes `EAGAIN`).
    pub fn interrupt(self) -> Errno {
        match self {
            Self::Interrupted => Errno::EINTR,
            Self::TimedOut => Errno::EAGAIN,
        }
    }
}

/// What ends a wait early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interest {
    /// Any signal that the thread does not block.
    Signals,
    /// The end of the thread only.
    Fatal,
    /// The end of the thread only; it waits for SIGCONT.
    Continuation,
    /// The end of the thread only; it waits for its tracer.
    Tracer,
}

/// A queue among several, known by its address.
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

/// The queues of the files that a call waits for: as many as a program likes, in blocks of a page.
#[derive(Default)]
pub struct Queues<'a> {
    queues: Paged<Known<'a>>,
    /// One could not be added.
    incomplete: bool,
}

impl<'a> Queues<'a> {
    /// No queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            queues: Paged::new(),
            incomplete: false,
        }
    }

    /// Adds a queue. One that there is no memory for is missed by [`Self::complete`].
    pub fn add(&mut self, queue: &'a WaitQueue) {
        self.incomplete |= self.queues.try_push(Known(queue)).is_err();
    }

    /// Checks that no queue is missing, and makes each stand there once: a thread waits in each once.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn complete(&mut self) -> Result<(), OutOfMemory> {
        if self.incomplete {
            return Err(OutOfMemory);
        }
        self.queues.sort_and_deduplicate();
        Ok(())
    }

    /// The queues.
    pub fn iter(&self) -> impl Iterator<Item = &'a WaitQueue> + Clone {
        self.queues.iter().map(|known| known.0)
    }
}

/// What hears of wakes without being a thread: an entry of an epoll.
pub trait Observer: Send + Sync {
    /// The queue was woken. Called without locks. Returns whether somebody was woken by it.
    fn notify(self: Arc<Self>, kernel: &Kernel) -> bool;

    /// Of those that say so, a wake stops at the first that woke somebody (`EPOLLEXCLUSIVE`).
    fn is_exclusive(&self) -> bool;
}

/// Waiters that are woken, or observers that are notified, between two scheduling points.
const TOGETHER: u32 = 64;

/// Observers that are dropped between two scheduling points; fewer go with their queue.
const SWEPT: usize = 64;

/// Threads that wait for something, first come first, and those who are told of each wake.
pub struct WaitQueue {
    /// What is waited for here, for reports.
    name: &'static str,
    waiters: Lock<Waiters>,
}

/// Both lists are empty most of the time; the first to come allocates.
struct Waiters {
    threads: VecDeque<Arc<Thread>>,
    /// A walk over them finds its place again after a change. One that is gone stays until a sweep.
    observers: Rising<Weak<dyn Observer>>,
    sweep: Sweep,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// A queue without waiters.
    pub const fn new() -> Self {
        Self::named("an event")
    }

    /// A queue without waiters; reports say that its threads wait for `name`.
    pub const fn named(name: &'static str) -> Self {
        Self {
            name,
            waiters: Lock::new(
                Rank::Wait,
                Waiters {
                    threads: VecDeque::new(),
                    observers: Rising::new(),
                    sweep: Sweep::new(),
                },
            ),
        }
    }

    /// What is waited for here.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Adds a waiter at the end.
    ///
    /// # Errors
    /// [`OutOfMemory`]: programs decide how many threads wait, and in how many queues.
    #[inline]
    pub(crate) fn add(&self, thread: &Arc<Thread>) -> Result<(), OutOfMemory> {
        let mut waiters = lock_with_room(&self.waiters, |waiters| &mut waiters.threads)?;
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        waiters.threads.push_back(thread.clone());
        Ok(())
    }

    /// Removes a waiter wherever it stands. `false` if somebody took it out to wake it.
    pub(crate) fn remove(&self, thread: &Arc<Thread>) -> bool {
        let threads = &mut self.waiters.lock().threads;
        if let Some(position) = threads
            .iter()
            .position(|waiter| Arc::ptr_eq(waiter, thread))
        {
            let _ = threads.remove(position);
            return true;
        }
        false
    }

    /// Tells an observer of every wake from now on, for as long as it exists.
    ///
    /// # Errors
    /// [`OutOfMemory`]: programs decide how many observers a queue has.
    pub fn observe(&self, observer: Weak<dyn Observer>) -> Result<(), OutOfMemory> {
        let mut waiters = lock_with_room(&self.waiters, |waiters| &mut waiters.observers)?;
        let Waiters {
            observers, sweep, ..
        } = &mut *waiters;
        if sweep.is_due(observers.len()) {
            observers.retain(|observer| observer.strong_count() > 0);
            sweep.done(observers.len());
        }
        observers.try_push(observer).map(drop)
    }

    /// Drops the observers that are gone, and lets other threads run in between: before a queue goes that a program may
    /// have had watched as often as it likes. The caller holds no lock but those that sleep.
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

    /// Somebody waits.
    pub fn has_waiters(&self) -> bool {
        let waiters = self.waiters.lock();
        !waiters.threads.is_empty() || !waiters.observers.is_empty()
    }

    /// Wakes the first waiter, and notifies the observers. Returns whether a thread waited. The caller holds no lock but
    /// those that sleep: other threads may run in between.
    pub fn wake_one(&self, kernel: &Kernel) -> bool {
        assert_may_sleep();
        let (first, observed) = {
            let mut waiters = self.waiters.lock();
            let first = waiters.threads.pop_front();
            (first, !waiters.observers.is_empty())
        };
        if let Some(thread) = &first {
            kernel.scheduler.wake(kernel, thread);
        }
        if observed {
            self.tell_observers(kernel);
        }
        first.is_some()
    }

    /// Wakes every waiter, in the order in which they came, and notifies the observers. The caller holds no lock but those
    /// that sleep: other threads may run in between.
    pub fn wake_all(&self, kernel: &Kernel) {
        assert_may_sleep();
        let (threads, observed) = {
            let mut waiters = self.waiters.lock();
            let observed = !waiters.observers.is_empty();
            (core::mem::take(&mut waiters.threads), observed)
        };
        let mut points = PausePoints::every(TOGETHER);
        for thread in threads {
            kernel.scheduler.wake(kernel, &thread);
            points.round();
        }
        if observed {
            self.tell_observers(kernel);
        }
    }

    #[cold]
    fn tell_observers(&self, kernel: &Kernel) {
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
                exclusive_woken |= observer.notify(kernel) && exclusive;
            }
        }
    }
}
