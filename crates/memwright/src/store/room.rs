//! The settings of a mounted tmpfs: the limit on the number of pages of all its files, and which of the files have huge
//! pages.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::types::huge::SharedMode;
use crate::types::huge_settings::HugeSettings;

/// The value of `most` if there is no limit.
const ANY: u64 = u64::MAX;

/// The state that the files of a mounted tmpfs share: the number of their pages in memory and in swap, the limit of
/// this number (Linux 7.2 `mm/shmem.c`, `shmem_inode_acct_blocks`), and the mode that decides whether the files have
/// huge pages. The limit and the mode can change at any time (`shmem_reconfigure`).
#[derive(Debug)]
pub struct Room {
    used: AtomicU64,
    most: AtomicU64,
    huge: AtomicU8,
}

impl Room {
    /// Creates a `Room` with a limit of `most` pages of 4 KiB, or without a limit, and with the huge-page mode `mode`.
    #[must_use]
    pub fn new(settings: &HugeSettings, most: Option<u64>, mode: SharedMode) -> Self {
        settings.note_mount(mode);
        Self {
            used: AtomicU64::new(0),
            most: AtomicU64::new(most.unwrap_or(ANY)),
            huge: AtomicU8::new(mode as u8),
        }
    }

    /// Returns the limit in pages, if there is one.
    #[must_use]
    pub fn most(&self) -> Option<u64> {
        let most = self.most.load(Ordering::Relaxed);
        (most != ANY).then_some(most)
    }

    /// Sets the limit. The caller must ensure that it is not below the number of pages in use.
    pub fn set_most(&self, most: Option<u64>) {
        self.most.store(most.unwrap_or(ANY), Ordering::Relaxed);
    }

    /// Returns which objects have huge pages.
    #[must_use]
    pub fn huge(&self) -> SharedMode {
        SharedMode::of(self.huge.load(Ordering::Relaxed))
    }

    /// Sets which objects have huge pages.
    pub fn set_huge(&self, settings: &HugeSettings, mode: SharedMode) {
        self.huge.store(mode as u8, Ordering::Relaxed);
        settings.note_mount(mode);
    }

    /// Returns the number of pages in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns whether the limit allows `pages` more pages.
    #[must_use]
    pub fn has(&self, pages: u64) -> bool {
        fits(self.used(), pages, self.most())
    }

    /// Adds `pages` to the number of pages in use, unless the sum exceeds the limit. Returns whether the pages were
    /// added.
    pub(super) fn take(&self, pages: u64) -> bool {
        let most = self.most();
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                fits(used, pages, most).then(|| used + pages)
            });
        taken.is_ok()
    }

    /// Subtracts `pages` pages from the number in use.
    pub(super) fn give_back(&self, pages: u64) {
        let used = self.used.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(used >= pages, "given back twice");
    }
}

/// Returns whether `more` pages in addition to `used` are within the limit.
fn fits(used: u64, more: u64, most: Option<u64>) -> bool {
    more == 0 || most.is_none_or(|most| used.saturating_add(more) <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_ends_where_it_was_said_to() {
        #[rustfmt::skip]
        let rows = [
            (0,   1,        Some(1), true),
            (1,   1,        Some(1), false),
            (1,   0,        Some(1), true),
            // Adding 0 pages is allowed even if the number in use exceeds the limit.
            (2,   0,        Some(1), true),
            (511, 512,      Some(1024), true),
            (513, 512,      Some(1024), false),
            (1,   u64::MAX, Some(1024), false),
            (1,   1,        Some(0), false),
            (u64::MAX - 1, 1, None, true),
        ];
        for (used, more, most, expected) in rows {
            assert_eq!(
                fits(used, more, most),
                expected,
                "{used} + {more} of {most:?}"
            );
        }
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let room = Room::new(&HugeSettings::default(), Some(3), SharedMode::Never);
        assert!(room.take(2) && !room.take(2) && room.take(1));
        assert!(!room.has(1));
        room.give_back(2);
        assert!(room.has(2) && !room.has(3));
        assert_eq!((room.used(), room.most()), (1, Some(3)));
        room.set_most(None);
        assert!(room.has(1 << 40) && room.most().is_none());
        room.set_most(Some(1));
        assert!(!room.take(1) && room.take(0));
    }
}
