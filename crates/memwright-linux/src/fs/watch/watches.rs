//! The entries that watch a file.

use crate::{
    fs::watch::{item::Item, marks::Mark},
    sweep::Sweep,
    sync::{Lock, PausePoints, Rank, lock_with_room},
};
use alloc::sync::{Arc, Weak};
use memwright_table::{OutOfMemory, Rising};

/// Number of entries that are removed between two scheduling points.
const TOGETHER: u32 = 64;

/// The entries that watch an open file or an epoll.
pub struct Watches<F> {
    pub(in crate::fs) items: Lock<WatchList<F>>,
    pub(in crate::fs) mark: Mark,
}

impl<F> Default for Watches<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> Watches<F> {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            items: Lock::new(Rank::Lists, WatchList::new()),
            mark: Mark::new(),
        }
    }

    pub(in crate::fs) fn add(&self, item: &Arc<Item<F>>) -> Result<(), OutOfMemory> {
        let mut items = lock_with_room(&self.items, |list| &mut list.items)?;
        items.add(Arc::downgrade(item))
    }

    /// Returns whether a live entry watches the file or epoll.
    pub(in crate::fs) fn is_watched(&self) -> bool {
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
pub(in crate::fs) struct WatchList<F> {
    items: Rising<Weak<Item<F>>>,
    sweep: Sweep,
}

impl<F> WatchList<F> {
    const fn new() -> Self {
        Self {
            items: Rising::new(),
            sweep: Sweep::new(),
        }
    }

    fn add(&mut self, item: Weak<Item<F>>) -> Result<(), OutOfMemory> {
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

    pub(in crate::fs) fn iter(&self) -> impl Iterator<Item = &Weak<Item<F>>> {
        self.items.iter()
    }
}
