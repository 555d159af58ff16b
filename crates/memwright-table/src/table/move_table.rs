//! Moves last-level tables as a whole.

use core::sync::atomic::Ordering;

use super::level::{ABOVE, ENTRIES, TABLE_PAGES, slot_index, slot_pages};
use super::numbers;
use crate::addr::{Page, PageRange};
use crate::arch::{Slot, TableSlot, word};
use crate::frame::Meta;
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::{Rank, Step, step};

/// The maximum number of tables that move while their upper table is locked.
const TOGETHER: usize = 64;

/// Determines which parts of a range move as whole tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeTables {
    from: PageRange,
    /// Whether whole tables may move: the move permits it, and each page has the same slot index in its old and new
    /// last-level table.
    congruent: bool,
}

impl WholeTables {
    /// Creates the state for a move of `from` to the pages from `to` on. No table moves as a whole unless `allowed`.
    pub(super) fn of(from: PageRange, to: Page, allowed: bool) -> Self {
        let apart = to.number().wrapping_sub(from.start.number());
        let congruent = allowed && apart % TABLE_PAGES == 0;
        Self { from, congruent }
    }

    /// Returns the number of last-level tables that move as a whole, from the page `start` on. `start` is the first
    /// page of such a table.
    pub(super) fn tables_from(self, start: Page) -> u64 {
        (self.from.end.number() - start.number()) / TABLE_PAGES
    }

    /// Returns the end of a run of pages that begins at `start` and consists of tables that move as a whole. The
    /// entries for these tables are in one upper table before the move, and in one upper table after it. `start` is the
    /// first page of a table that moves, and `to` is its new page.
    pub(super) fn upper_end(self, start: Page, to: Page) -> Page {
        let left = |page: Page| slot_pages(ABOVE + 1) - page.number() % slot_pages(ABOVE + 1);
        let all = self.tables_from(start) * TABLE_PAGES;
        start.add(all.min(left(start)).min(left(to)))
    }

    /// Returns `false` if certainly no table moves as a whole.
    pub(super) fn any(self) -> bool {
        self.congruent && self.from.len() >= TABLE_PAGES
    }

    /// Returns the pages of the last-level table for `page`, if that table moves as a whole.
    pub(super) fn around(self, page: Page) -> Option<PageRange> {
        let start = Page::new(page.number() & !(TABLE_PAGES - 1));
        let pages = PageRange::new(start, start.add(TABLE_PAGES));
        (self.congruent && self.from.covers(pages)).then_some(pages)
    }
}

impl<M: Machine> Table<M> {
    /// Moves up to `count` last-level tables from `from` to `to`, where no table is linked. `from` and `to` are
    /// multiples of 512. Ends early at the end of an upper table, and before an upper entry that maps a page. Returns
    /// the number of upper entries that were moved or are empty, and the number of entries that moved with the tables.
    ///
    /// The word of an upper entry moves unchanged, because its accessed bit records accesses through the table (rule:
    /// fold-before-clearing).
    ///
    /// # Locks
    /// The caller holds the write lock of the address space and no other lock.
    ///
    /// # Panics
    /// If an upper entry at the new address is not empty.
    pub(super) fn move_tables(
        &self,
        (from, to): (Page, Page),
        count: u64,
        gather: &mut Gather<'_, M>,
    ) -> (u64, u64) {
        let mut words = [0; TOGETHER];
        let (words, entries) = {
            let (above, slots) = self.upper_slots(from);
            let room = (ENTRIES - slot_index(to, ABOVE)).min(slots.len());
            let count = room.min(TOGETHER).min(count as usize);
            above.lock.lock::<M::Threads>(Rank::Table);
            let (taken, entries) = self.unlink(&slots[..count], to, &mut words);
            let live = above.live.load(Ordering::Relaxed);
            let linked = words[..taken].iter().filter(|word| **word != 0).count() as u32;
            above.live.store(live - linked, Ordering::Relaxed);
            // Record while the lock is held, so that another operation that finds the entries absent also finds the
            // pending invalidation.
            gather.record_tables_moved(entries);
            above.lock.unlock::<M::Threads>(Rank::Table);
            (&words[..taken], entries)
        };
        let (above, slots) = self.upper_slots(to);
        above.lock.lock::<M::Threads>(Rank::Table);
        let mut live = above.live.load(Ordering::Relaxed);
        for (slot, word) in slots.iter().zip(words).filter(|(_, word)| **word != 0) {
            let old = slot.load(Ordering::Acquire);
            assert!(old == 0, "moved tables to {to:?}, which is not empty");
            slot.store(*word, Ordering::Release);
            live += 1;
        }
        above.live.store(live, Ordering::Relaxed);
        above.lock.unlock::<M::Threads>(Rank::Table);
        (words.len() as u64, entries)
    }

    /// Unlinks the tables to which the upper entries in `slots` point, and stores the upper entries in `words`. The new
    /// pages of the first table begin at `to`. Returns the number of upper entries before the first one that maps a
    /// page, and the number of entries in the tables.
    ///
    /// # Locks
    /// The caller holds the lock of the upper table.
    fn unlink(&self, slots: &[SlotOf<M>], to: Page, words: &mut [u64]) -> (usize, u64) {
        let (mut taken, mut entries) = (0, 0);
        for (slot, kept) in slots.iter().zip(words) {
            step::<M::Threads>(Step::Entry);
            let word = slot.load(Ordering::Acquire);
            match word::slot(word, ABOVE) {
                Slot::Table(table) => {
                    let meta = self.frames().meta(table);
                    meta.lock.lock::<M::Threads>(Rank::TableChild);
                    let live = numbers::live(meta.live.load(Ordering::Relaxed));
                    // An empty table stays linked, and is freed with the old range.
                    if live > 0 {
                        slot.store(0, Ordering::Release);
                        entries += u64::from(live);
                        let first = to.add(taken as u64 * TABLE_PAGES);
                        meta.index.store(first.number(), Ordering::Relaxed);
                        meta.disturb();
                        *kept = word;
                    }
                    meta.lock.unlock::<M::Threads>(Rank::TableChild);
                }
                Slot::Entry if word == 0 => {}
                Slot::Entry => break,
            }
            taken += 1;
        }
        (taken, entries)
    }

    /// Returns the metadata of the upper table (level [`ABOVE`]) for `page`, and its entries from the one for `page`
    /// on.
    ///
    /// # Panics
    /// If there is no such table.
    fn upper_slots(&self, page: Page) -> (&Meta, &[SlotOf<M>]) {
        let frames = self.frames();
        let Ok(node) = self.upper_table(page) else {
            panic!("no upper table for {page:?}");
        };
        let slots = &frames.table_words(node)[slot_index(page, ABOVE)..];
        (frames.meta(node), slots)
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
