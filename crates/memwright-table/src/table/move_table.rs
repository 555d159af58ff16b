//! Moves last-level tables as a whole.

use core::sync::atomic::{AtomicU64, Ordering};

use super::level::{ROOT_LEVEL, slot_index, slot_pages};
use crate::addr::{Page, PageRange};
use crate::entry::x86_64::{self, Slot};
use crate::frame::Meta;
use crate::gather::Gather;
use crate::machine::Machine;
use crate::root::Table;
use crate::sync::Rank;

/// The level of the entries that point to last-level tables.
const UPPER: u8 = 2;

/// Which parts of a range move as whole tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeTables {
    from: PageRange,
    /// Whether the old and the new place of each page are at the same place of their tables.
    congruent: bool,
}

impl WholeTables {
    /// Decides for a move of `from` to the pages from `to` on. No table moves unless `allowed`.
    pub(super) fn of(from: PageRange, to: Page, allowed: bool) -> Self {
        let apart = to.number().wrapping_sub(from.start.number());
        let congruent = allowed && apart % slot_pages(UPPER) == 0;
        Self { from, congruent }
    }

    /// Returns whether the range is long enough for a table.
    pub(super) fn any(self) -> bool {
        self.congruent && self.from.len() >= slot_pages(UPPER)
    }

    /// Returns the pages of the table for `page`, if all of them move.
    pub(super) fn around(self, page: Page) -> Option<PageRange> {
        let start = Page::new(page.number() & !(slot_pages(UPPER) - 1));
        let pages = PageRange::new(start, start.add(slot_pages(UPPER)));
        (self.congruent && self.from.covers(pages)).then_some(pages)
    }
}

impl<M: Machine> Table<M> {
    /// Links the last-level table of the pages from `from` on at `to`, where no table is linked yet, and unlinks it at
    /// its old place. Both are multiples of 512 pages. Returns the number of entries that moved with it.
    ///
    /// The word of the upper entry moves as it is: its accessed bit covers the accessed bits below it (rule:
    /// fold-before-clearing).
    ///
    /// # Locks
    /// The caller holds the write lock of the address space and no other lock.
    ///
    /// # Panics
    /// If there is no table at the old place, or if there is something at the new one.
    pub(super) fn move_table(&self, from: Page, to: Page, gather: &mut Gather<'_, M>) -> u64 {
        let frames = self.frames();
        let (above, slot) = self.upper_slot(from);
        above.lock.lock(Rank::Table);
        let word = slot.load(Ordering::Acquire);
        let Slot::Table(table) = x86_64::slot(word, UPPER) else {
            panic!("no table to move at {from:?}");
        };
        let meta = frames.meta(table);
        meta.lock.lock(Rank::TableChild);
        slot.store(0, Ordering::Release);
        let live = above.live.load(Ordering::Relaxed);
        above.live.store(live - 1, Ordering::Relaxed);
        let entries = u64::from(meta.live.load(Ordering::Relaxed));
        gather.record_table_moved(entries);
        meta.index.store(to.number(), Ordering::Relaxed);
        meta.disturb();
        meta.lock.unlock(Rank::TableChild);
        above.lock.unlock(Rank::Table);

        let (above, slot) = self.upper_slot(to);
        above.lock.lock(Rank::Table);
        let old = slot.load(Ordering::Acquire);
        assert!(old == 0, "moved a table to {to:?}, which is not empty");
        slot.store(word, Ordering::Release);
        let live = above.live.load(Ordering::Relaxed);
        above.live.store(live + 1, Ordering::Relaxed);
        above.lock.unlock(Rank::Table);
        entries
    }

    /// Returns the metadata of the table one level above the last for `page`, and the entry in it.
    ///
    /// # Panics
    /// If there is no such table.
    fn upper_slot(&self, page: Page) -> (&Meta, &AtomicU64) {
        let frames = self.frames();
        let mut node = self.root();
        for level in (UPPER + 1..=ROOT_LEVEL).rev() {
            let word = frames.table_words(node)[slot_index(page, level)].load(Ordering::Acquire);
            let Slot::Table(lower) = x86_64::slot(word, level) else {
                panic!("no table of level {} for {page:?}", level - 1);
            };
            node = lower;
        }
        let slot = &frames.table_words(node)[slot_index(page, UPPER)];
        (frames.meta(node), slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_move_if_all_of_their_pages_do_to_the_same_place() {
        let range = |start, end| PageRange::new(Page::new(start), Page::new(end));
        #[rustfmt::skip]
        let rows = [
            // from            to     allowed  page   pages of the table
            (range(512, 1536),  4096, true,     600,  Some((512, 1024))),
            (range(512, 1536),  4096, true,    1535,  Some((1024, 1536))),
            (range(512, 1536),  4097, true,     600,  None),
            (range(512, 1536),  4096, false,    600,  None),
            (range(513, 1537),  4097, true,     600,  None),
            (range(513, 1537),  4097, true,    1100,  Some((1024, 1536))),
            (range(513, 1537),     1, true,    1100,  Some((1024, 1536))),
            (range(513, 1500),  4097, true,    1100,  None),
        ];
        for (from, to, allowed, page, expected) in rows {
            let whole = WholeTables::of(from, Page::new(to), allowed);
            let expected = expected.map(|(start, end)| range(start, end));
            assert_eq!(
                whole.around(Page::new(page)),
                expected,
                "{from:?} {to} {page}"
            );
        }
    }
}
