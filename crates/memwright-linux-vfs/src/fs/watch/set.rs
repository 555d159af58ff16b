//! An epoll: the set of its entries and its ready list.

use crate::{
    fs::watch::{item::Item, items::Items, marks::PathCounts, ready::ReadyList, watches::Watches},
    identity::User,
};
use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;
use memwright_linux_base::sync::{Lock, PausePoints, Rank};
use memwright_linux_sched::wait::WaitQueue;
use memwright_table::Shared;

/// An epoll: the set of watched files and the ready list.
pub struct Epoll<F> {
    pub(in crate::fs) items: Lock<Items<F>>,
    /// Whether the epoll has ever had an entry with `looked_at` set. Each `epoll_wait` must poll the file of such an
    /// entry.
    pub(in crate::fs) has_looked_at: AtomicBool,
    pub(in crate::fs) ready: ReadyList<Item<F>>,
    /// Woken when an entry is put on the ready list. Threads in `epoll_wait` wait here, and the entries of epolls that
    /// watch this one observe the queue.
    pub(in crate::fs) queue: WaitQueue,
    /// The entries of other epolls that watch this one, for the limits on nesting.
    pub(in crate::fs) watched: Watches<F>,
    pub(in crate::fs) paths: PathCounts,
    /// The user that created the epoll. The entries are charged to this user.
    pub(in crate::fs) user: Shared<User>,
}

impl<F> Drop for Epoll<F> {
    /// Drops the entries block by block, with scheduling points in between.
    fn drop(&mut self) {
        self.user.watches.remove(self.items.get_mut().len() as u64);
        let mut points = PausePoints::every(1);
        while self.items.get_mut().drop_some() {
            points.round();
        }
        self.ready.clear();
        self.queue.sweep();
    }
}

impl<F> Epoll<F> {
    /// Creates an empty epoll whose entries are charged to `user`.
    #[must_use]
    pub fn new(user: Shared<User>) -> Self {
        Self {
            items: Lock::new(Rank::File, Items::new()),
            has_looked_at: AtomicBool::new(false),
            ready: ReadyList::new(),
            queue: WaitQueue::new(),
            watched: Watches::new(),
            paths: PathCounts::default(),
            user,
        }
    }

    /// Removes the entry `item`, because its file was closed or its addition failed. Does nothing if another entry has
    /// replaced `item`.
    pub(in crate::fs) fn forget(&self, item: &Arc<Item<F>>) {
        let mut items = self.items.lock();
        let own = items
            .get(&item.key)
            .is_some_and(|known| Arc::ptr_eq(known, item));
        let removed = if own { items.remove(&item.key) } else { None };
        drop(items);
        if removed.is_some() {
            self.user.watches.remove(1);
        }
        drop(removed);
    }

    /// Puts an entry on the ready list and wakes one waiter. Returns whether a thread was waiting for events.
    pub(in crate::fs) fn make_ready(&self, item: &Arc<Item<F>>) -> bool {
        self.enlist(item);
        self.queue.wake_one()
    }

    /// Appends an entry to the ready list, unless it is already on the list.
    pub(in crate::fs) fn enlist(&self, item: &Arc<Item<F>>) {
        if item.enlist() {
            self.ready.push(item);
        }
    }
}
