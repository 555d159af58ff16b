//! One watched file.

use super::{Epoll, EpollFile, Key, nesting::Mark};
use crate::{
    abi_struct,
    fs::{
        caller::Caller,
        open_file::{OpenFile, Polling, Readiness},
    },
    sweep::Sweep,
    sync::{Lock, PausePoints, Rank, lock_with_room},
    wait::{Observer, WaitQueue},
};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::general as raw;
use memwright_table::{OutOfMemory, Rising};

abi_struct! {
    /// `struct epoll_event` of `linux/eventpoll.h`, packed on x86-64.
    pub struct Event {
        /// The events waited for, or found.
        pub events: u32,
        /// The program's data.
        pub data: u64,
    }
}

/// The events that an entry waits for, and how they are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// The `EPOLL` bits.
    pub events: u32,
    /// The program's data.
    pub data: u64,
}

/// The only bits that an exclusive entry is allowed to have (`EPOLLEXCLUSIVE_OK_BITS` of Linux 7.2, `fs/eventpoll.c`).
const EXCLUSIVE_BITS: u32 = raw::EPOLLIN
    | raw::EPOLLOUT
    | raw::EPOLLERR
    | raw::EPOLLHUP
    | raw::EPOLLWAKEUP
    | raw::EPOLLET
    | raw::EPOLLEXCLUSIVE;

impl Interest {
    /// Returns whether the entry is exclusive: a wake-up notifies at most one waiting exclusive entry
    /// (`EPOLLEXCLUSIVE`).
    #[must_use]
    pub const fn is_exclusive(&self) -> bool {
        self.events & raw::EPOLLEXCLUSIVE != 0
    }

    /// Returns whether an exclusive entry is allowed to have these events.
    #[must_use]
    pub const fn may_be_exclusive(&self) -> bool {
        self.events & !EXCLUSIVE_BITS == 0
    }

    /// Returns whether the entry is reported once for each change, however long the file stays ready (`EPOLLET`).
    #[must_use]
    pub const fn is_edge_triggered(&self) -> bool {
        self.events & raw::EPOLLET != 0
    }

    /// Returns whether the entry is reported once and then disabled until `EPOLL_CTL_MOD` (`EPOLLONESHOT`).
    #[must_use]
    pub const fn is_one_shot(&self) -> bool {
        self.events & raw::EPOLLONESHOT != 0
    }

    /// Returns the readiness that the entry waits for. Errors and hang-ups are always included.
    #[must_use]
    pub fn wanted(&self) -> Readiness {
        let always = Readiness::ERROR.union(Readiness::HANGUP);
        Readiness::from_bits_truncate(self.events).union(always)
    }
}

/// An entry of an epoll: one watched file. A change of its interest replaces it by a new entry.
pub struct Item {
    epoll: Weak<Epoll>,
    open: Weak<OpenFile>,
    /// The watched epoll, if the watched file is an epoll.
    inner: Option<Weak<Epoll>>,
    pub(super) key: Key,
    /// Woken when the process that added the entry gets a signal: the queue of a watched signalfd.
    pub(super) home: Weak<WaitQueue>,
    /// The events that the entry waits for.
    pub interest: Interest,
    /// Whether the file does not wake queues, so that its readiness must be polled.
    pub(super) looked_at: bool,
    /// Whether the entry is on the ready list.
    listed: AtomicBool,
    /// Whether the one-shot entry was reported. It is then disabled until `EPOLL_CTL_MOD` replaces it.
    spent: AtomicBool,
}

impl Item {
    pub(super) fn new(
        epoll: &Arc<Epoll>,
        open: &Arc<OpenFile>,
        (key, home): (Key, Weak<WaitQueue>),
        interest: Interest,
    ) -> Self {
        Self {
            epoll: Arc::downgrade(epoll),
            open: Arc::downgrade(open),
            inner: open
                .as_kind::<EpollFile>()
                .map(|file| Arc::downgrade(&file.epoll)),
            key,
            home,
            interest,
            looked_at: open.file.polling() == Polling::Look,
            listed: AtomicBool::new(false),
            spent: AtomicBool::new(false),
        }
    }

    /// Returns the epoll to which the entry belongs, if it still exists.
    pub(super) fn epoll(&self) -> Option<Arc<Epoll>> {
        self.epoll.upgrade()
    }

    /// Returns the watched file, if it is still open.
    pub(super) fn open(&self) -> Option<Arc<OpenFile>> {
        self.open.upgrade()
    }

    /// Returns whether the watched file is an epoll.
    pub(super) fn is_nested(&self) -> bool {
        self.inner.is_some()
    }

    /// Returns the watched epoll, if the watched file is an epoll and still exists.
    pub(super) fn inner(&self) -> Option<Arc<Epoll>> {
        self.inner.as_ref()?.upgrade()
    }

    /// Returns which of the events of interest are ready now.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub(super) fn found(&self, caller: &dyn Caller, open: &OpenFile) -> Readiness {
        if self.is_spent() {
            return Readiness::empty();
        }
        open.file
            .readiness(caller, open)
            .intersection(self.interest.wanted())
    }

    /// Marks the entry as on the ready list. Returns `false` if it was already marked.
    pub(super) fn enlist(&self) -> bool {
        !self.listed.swap(true, Ordering::SeqCst)
    }

    pub(super) fn delist(&self) {
        self.listed.store(false, Ordering::SeqCst);
    }

    /// Marks a one-shot entry as reported. Returns `false` if another thread has already marked it.
    pub(super) fn spend(&self) -> bool {
        !self.spent.swap(true, Ordering::SeqCst)
    }

    pub(super) fn restore(&self) {
        self.spent.store(false, Ordering::SeqCst);
    }

    fn is_spent(&self) -> bool {
        self.spent.load(Ordering::SeqCst)
    }
}

impl Observer for Item {
    fn notify(self: Arc<Self>) -> bool {
        if self.is_spent() {
            return false;
        }
        self.epoll().is_some_and(|epoll| epoll.make_ready(&self))
    }

    fn is_exclusive(&self) -> bool {
        self.interest.is_exclusive()
    }
}

/// Number of entries that are removed between two scheduling points.
const TOGETHER: u32 = 64;

/// The entries that watch an open file or an epoll.
pub struct Watches {
    pub(super) items: Lock<WatchList>,
    pub(super) mark: Mark,
}

impl Default for Watches {
    fn default() -> Self {
        Self::new()
    }
}

impl Watches {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            items: Lock::new(Rank::Lists, WatchList::new()),
            mark: Mark::new(),
        }
    }

    pub(super) fn add(&self, item: &Arc<Item>) -> Result<(), OutOfMemory> {
        let mut items = lock_with_room(&self.items, |list| &mut list.items)?;
        items.add(Arc::downgrade(item))
    }

    /// Returns whether a live entry watches the file or epoll.
    pub(super) fn is_watched(&self) -> bool {
        self.items.lock().has_live()
    }

    /// Removes the entries that watch a closed file from their epolls.
    ///
    /// # Locks
    /// The caller holds no lock but those that sleep, because other threads can run in between.
    pub(in crate::fs) fn forget(&mut self) {
        let mut points = PausePoints::every(TOGETHER);
        while let Some(item) = self.items.get_mut().items.pop() {
            if let Some(item) = item.upgrade()
                && let Some(epoll) = item.epoll()
            {
                epoll.forget(&item);
            }
            points.round();
        }
    }
}

/// Weak references to entries, some of which may have been freed.
pub(super) struct WatchList {
    items: Rising<Weak<Item>>,
    sweep: Sweep,
}

impl WatchList {
    const fn new() -> Self {
        Self {
            items: Rising::new(),
            sweep: Sweep::new(),
        }
    }

    fn add(&mut self, item: Weak<Item>) -> Result<(), OutOfMemory> {
        if self.sweep.is_due(self.items.len()) {
            self.items.retain(|item| item.strong_count() > 0);
            self.sweep.done(self.items.len());
        }
        self.items.try_push(item).map(drop)
    }

    /// Returns whether any entry of the list still exists. Drops dead references from the end of the list.
    fn has_live(&mut self) -> bool {
        while let Some(last) = self.items.last() {
            if last.strong_count() > 0 {
                return true;
            }
            self.items.pop();
        }
        false
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Weak<Item>> {
        self.items.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interests_are_read() {
        let interest = |events: u32| Interest { events, data: 0 };
        assert!(interest(raw::EPOLLEXCLUSIVE | raw::EPOLLIN).may_be_exclusive());
        assert!(!interest(raw::EPOLLEXCLUSIVE | raw::EPOLLONESHOT).may_be_exclusive());
        assert!(!interest(raw::EPOLLEXCLUSIVE | raw::EPOLLRDHUP).may_be_exclusive());
        let wanted = interest(raw::EPOLLIN | raw::EPOLLET).wanted();
        assert!(wanted.contains(Readiness::ERROR | Readiness::HANGUP));
        assert!(wanted.concerns_reading() && !wanted.concerns_writing());
        let wanted = interest(raw::EPOLLOUT).wanted();
        assert!(!wanted.concerns_reading() && wanted.concerns_writing());
        // An entry that waits for no data observes the readers' queue too, because errors wake it.
        assert!(interest(0).wanted().concerns_reading());
    }
}
