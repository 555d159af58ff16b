//! What a mounted tmpfs says of its files: how many pages they may have together, and which of them have huge pages.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::huge::{HugeSettings, SharedMode};

/// No limit.
const ANY: u64 = u64::MAX;

/// Pages that several objects have, in memory or in swap, how many they may have together (Linux 7.2 `mm/shmem.c`,
/// `shmem_inode_acct_blocks`), and whether they have huge pages. Both may change at any time (`shmem_reconfigure`).
#[derive(Debug)]
pub struct Room {
    used: AtomicU64,
    most: AtomicU64,
    huge: AtomicU8,
}

impl Room {
    /// Room for so many pages of 4 KiB, or for any number without a limit, where objects have huge pages as `mode` says.
    #[must_use]
    pub fn new(settings: &HugeSettings, most: Option<u64>, mode: SharedMode) -> Self {
        settings.note_mount(mode);
        Self {
            used: AtomicU64::new(0),
            most: AtomicU64::new(most.unwrap_or(ANY)),
            huge: AtomicU8::new(mode as u8),
        }
    }

    /// The most pages, if there is a limit.
    #[must_use]
    pub fn most(&self) -> Option<u64> {
        let most = self.most.load(Ordering::Relaxed);
        (most != ANY).then_some(most)
    }

    /// Sets the limit from now on. The caller sees to it that as many may be used as are.
    pub fn set_most(&self, most: Option<u64>) {
        self.most.store(most.unwrap_or(ANY), Ordering::Relaxed);
    }

    /// Which objects have huge pages.
    #[must_use]
    pub fn huge(&self) -> SharedMode {
        SharedMode::of(self.huge.load(Ordering::Relaxed))
    }

    /// Sets which have them from now on.
    pub fn set_huge(&self, settings: &HugeSettings, mode: SharedMode) {
        self.huge.store(mode as u8, Ordering::Relaxed);
        settings.note_mount(mode);
    }

    /// Pages that there are.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether so many more may come to be now.
    #[must_use]
    pub fn has(&self, pages: u64) -> bool {
        fits(self.used(), pages, self.most())
    }

    /// Takes room for so many pages, if there is.
    pub(super) fn take(&self, pages: u64) -> bool {
        let most = self.most();
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                fits(used, pages, most).then(|| used + pages)
            });
        taken.is_ok()
    }

    /// Gives the room of so many pages back.
    pub(super) fn give_back(&self, pages: u64) {
        let used = self.used.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(used >= pages, "given back twice");
    }
}

/// Whether `more` pages may come to be beside those `used`.
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
            // Whoever takes nothing more may go on, even where a limit was lowered meanwhile.
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
