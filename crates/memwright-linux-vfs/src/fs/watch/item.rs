//! An entry of an epoll.

use crate::fs::watch::{interest::Interest, items::Key, set::Epoll};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};
use memwright_linux_sched::wait::{Observer, WaitQueue};

/// An entry of an epoll: one watched file. `EPOLL_CTL_MOD` replaces it by a new entry.
pub struct Item<F> {
    pub(in crate::fs) epoll: Weak<Epoll<F>>,
    pub(in crate::fs) open: Weak<F>,
    /// The watched epoll; `None` if the watched file is not an epoll.
    pub(in crate::fs) inner: Option<Weak<Epoll<F>>>,
    pub(in crate::fs) key: Key,
    /// For a watched signalfd, the queue that is woken when the process that added the entry gets a signal. Empty for
    /// other files.
    pub(in crate::fs) home: Weak<WaitQueue>,
    /// The events that the entry waits for, and how it reports them.
    pub interest: Interest,
    /// Whether the watched file wakes no queue when its readiness changes. Each `epoll_wait` must then poll the watched
    /// file.
    pub(in crate::fs) looked_at: bool,
    /// Whether the entry is on the ready list.
    listed: AtomicBool,
    /// Whether the one-shot entry was reported. It stays disabled until `EPOLL_CTL_MOD` replaces it.
    spent: AtomicBool,
}

impl<F> Item<F> {
    pub(in crate::fs) fn new(
        epoll: &Arc<Epoll<F>>,
        (open, inner): (&Arc<F>, Option<&Arc<Epoll<F>>>),
        (key, home): (Key, Weak<WaitQueue>),
        interest: Interest,
        looked_at: bool,
    ) -> Self {
        Self {
            epoll: Arc::downgrade(epoll),
            open: Arc::downgrade(open),
            inner: inner.map(Arc::downgrade),
            key,
            home,
            interest,
            looked_at,
            listed: AtomicBool::new(false),
            spent: AtomicBool::new(false),
        }
    }

    /// Returns the epoll to which the entry belongs, or `None` if the epoll was closed.
    pub(in crate::fs) fn epoll(&self) -> Option<Arc<Epoll<F>>> {
        self.epoll.upgrade()
    }

    /// Returns the watched file, or `None` if it was closed.
    pub(in crate::fs) fn open(&self) -> Option<Arc<F>> {
        self.open.upgrade()
    }

    /// Returns whether the watched file is an epoll.
    pub(in crate::fs) fn is_nested(&self) -> bool {
        self.inner.is_some()
    }

    /// Returns the watched epoll, or `None` if the watched file is not an epoll or was closed.
    pub(in crate::fs) fn inner(&self) -> Option<Arc<Epoll<F>>> {
        self.inner.as_ref()?.upgrade()
    }

    /// Marks the entry as on the ready list. Returns `false` if it was already marked.
    pub(in crate::fs) fn enlist(&self) -> bool {
        !self.listed.swap(true, Ordering::SeqCst)
    }

    pub(in crate::fs) fn delist(&self) {
        self.listed.store(false, Ordering::SeqCst);
    }

    /// Marks a one-shot entry as reported. Returns `false` if another thread has already marked it.
    pub(in crate::fs) fn spend(&self) -> bool {
        !self.spent.swap(true, Ordering::SeqCst)
    }

    pub(in crate::fs) fn restore(&self) {
        self.spent.store(false, Ordering::SeqCst);
    }

    /// Returns whether the entry is disabled because it was reported once.
    pub(in crate::fs) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::SeqCst)
    }
}

impl<F: Send + Sync + 'static> Observer for Item<F> {
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
