//! The list of the entries that watch a file.

use crate::fs::watch::{item::Item, marks::Mark};
use alloc::sync::Arc;
use memwright_linux_base::{
    references::References,
    sync::{Lock, PausePoints, Rank, lock_with_room},
};
use memwright_table::OutOfMemory;

/// Number of entries that are removed between two scheduling points.
const TOGETHER: u32 = 64;

/// The entries that watch an open file or an epoll.
pub struct Watches<F> {
    pub(in crate::fs) items: Lock<References<Item<F>>>,
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
            items: Lock::new(Rank::Lists, References::new()),
            mark: Mark::new(),
        }
    }

    pub(in crate::fs) fn add(&self, item: &Arc<Item<F>>) -> Result<(), OutOfMemory> {
        lock_with_room(&self.items, |items| items)?.add(Arc::downgrade(item))
    }

    /// Returns whether an entry that has not been freed watches the file or epoll.
    pub(in crate::fs) fn is_watched(&self) -> bool {
        self.items.lock().has_live()
    }

    /// Removes the entries that watch a file, which is being closed, from their epolls.
    ///
    /// # Locks
    /// The caller holds no lock except those that sleep, because this function contains scheduling points.
    pub(in crate::fs) fn forget(&mut self) {
        let mut points = PausePoints::every(TOGETHER);
        while let Some(item) = self.items.get_mut().pop() {
            if let Some(item) = item.upgrade()
                && let Some(epoll) = item.epoll()
            {
                epoll.forget(&item);
            }
            points.round();
        }
    }
}
