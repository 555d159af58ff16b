//! Sharing the last-level tables of a parent with its child.

use core::sync::atomic::{AtomicU64, Ordering};

use super::cursor::Cursor;
use super::level::{ABOVE, ENTRIES, SHARED_OWNER, TABLE_PAGES, slot_index, table_owner};
use super::numbers;
use super::shared::{count_entries, is_shareable, is_shared};
use crate::addr::{Frame, Page, PageRange};
use crate::entry::x86_64::{self, Slot};
use crate::frame::{OutOfFrames, add_references};
use crate::gather::Gather;
use crate::machine::Machine;
use crate::root::Table;
use crate::sync::{Rank, Step, step};

/// The maximum number of tables that are shared while their upper table is locked.
const TOGETHER: usize = 64;

/// Which tables are shared, decided once per fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRule {
    /// The minimum number of entries. To copy fewer entries costs less than to stop sharing a table later.
    pub least: u32,
    /// Whether entries can have state that belongs to one address space. If so, each entry is read, and a table with
    /// such an entry is not shared.
    pub looks: bool,
}

/// The result of [`Table::share_tables`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedTables {
    /// The number of tables that the child shares now.
    pub tables: u64,
    /// The number of their pages whose entries hold references.
    pub counted: u64,
    /// The number of their swap entries.
    pub swapped: u64,
    /// The number of their other entries: special pages, and markers.
    pub others: u64,
}

impl SharedTables {
    fn add(&mut self, numbers: u32) {
        let (live, counted) = (numbers::live(numbers), numbers::counted(numbers));
        let swapped = numbers::swapped(numbers);
        self.tables += 1;
        self.counted += u64::from(counted);
        self.swapped += u64::from(swapped);
        self.others += u64::from(live - counted - swapped);
    }
}

impl<M: Machine> Table<M> {
    /// Shares the last-level tables of this address space, from the start of `range` on, with `child`, at the same
    /// addresses. Nothing is mapped in the child there. Ends before the first table that is not shared: it is only partly
    /// in the range, a huge page or a marker is in its place, or `rule` does not permit it. Returns the first page
    /// that was not handled, which is the end of the range if every table was shared.
    ///
    /// The entries above the shared tables lose the right to write, which the gather records.
    ///
    /// # Errors
    /// [`OutOfFrames`] if the child's upper tables cannot be allocated, or if no frame can be earmarked for each table.
    /// The tables before the first page that was not handled are shared.
    ///
    /// # Locks
    /// The caller holds the write locks of both address spaces, and no other lock. All pages of the range are private
    /// anonymous memory, and none is pinned.
    pub fn share_tables(
        &self,
        child: &Table<M>,
        (range, rule): (PageRange, ShareRule),
        shared: &mut SharedTables,
        gather: &mut Gather<'_, M>,
    ) -> Result<Page, OutOfFrames> {
        let mut page = range.start;
        while page < range.end {
            let above = match self.upper_table(page) {
                Ok(above) => above,
                Err(next) => {
                    page = next.min(range.end);
                    continue;
                }
            };
            if page.number() % TABLE_PAGES != 0 {
                break;
            }
            let first = slot_index(page, ABOVE);
            let whole = ((range.end.number() - page.number()) / TABLE_PAGES) as usize;
            let most = whole.min(ENTRIES - first).min(TOGETHER);
            if most == 0 {
                break;
            }
            let mut words = [0; TOGETHER];
            let count = match self.frames().earmark_tables(most as u64) {
                Ok(()) => most,
                // The tables may be fewer than their upper entries.
                Err(OutOfFrames) => self.frames().earmark_tables(1).map(|()| 1)?,
            };
            let before = shared.tables;
            let handled = self.offer((above, rule), (page, &mut words[..count]), shared, gather);
            let linked = shared.tables - before;
            self.frames().release_earmarks(count as u64 - linked);
            if linked > 0 {
                let linking = child.link_shared(page, &words[..handled], linked);
                if linking.is_err() {
                    self.withdraw(&words[..handled], linked);
                    return linking.map(|()| page);
                }
            }
            page = page.add(handled as u64 * TABLE_PAGES);
            if handled < count {
                break;
            }
        }
        Ok(page)
    }

    /// Makes the tables below the entries of the upper table `above` shared, from `page` on, one for each element of
    /// `words`, and counts the child among the address spaces that share them. Stores the entry for the child in each
    /// element, or 0 if there is no table. Returns the number of entries before the first that cannot be shared.
    fn offer(
        &self,
        (above, rule): (Frame, ShareRule),
        (page, words): (Page, &mut [u64]),
        shared: &mut SharedTables,
        gather: &mut Gather<'_, M>,
    ) -> usize {
        let frames = self.frames();
        let meta = frames.meta(above);
        let first = slot_index(page, ABOVE);
        let slots = &frames.table_words(above)[first..first + words.len()];
        let mut handled = 0;
        meta.lock.lock::<M::Threads>(Rank::Table);
        for (slot, for_child) in slots.iter().zip(words) {
            step::<M::Threads>(Step::Entry);
            let word = slot.load(Ordering::Acquire);
            let start = page.add(handled as u64 * TABLE_PAGES);
            match x86_64::slot(word, ABOVE) {
                Slot::Table(lower) => match self.offer_one((slot, rule), (lower, start), gather) {
                    Offered::Shared(numbers) => {
                        shared.add(numbers);
                        *for_child = x86_64::shared_table(lower);
                    }
                    Offered::Empty => {}
                    Offered::Refused => break,
                },
                Slot::Entry if word == 0 => {}
                Slot::Entry => break,
            }
            handled += 1;
        }
        meta.lock.unlock::<M::Threads>(Rank::Table);
        handled
    }

    /// Makes the table `lower`, to which `slot` points, shared, and counts one more address space that shares it.
    fn offer_one(
        &self,
        (slot, rule): (&AtomicU64, ShareRule),
        (lower, start): (Frame, Page),
        gather: &mut Gather<'_, M>,
    ) -> Offered {
        let frames = self.frames();
        let meta = frames.meta(lower);
        meta.lock.lock::<M::Threads>(Rank::TableChild);
        let numbers = meta.live.load(Ordering::Relaxed);
        let words = frames.table_words(lower);
        debug_assert_eq!(
            numbers,
            count_entries(words),
            "the numbers of a table are wrong"
        );
        let offered = if numbers == 0 {
            Offered::Empty
        } else if numbers::live(numbers) < rule.least {
            Offered::Refused
        } else if is_shared(meta) {
            Offered::Shared(numbers)
        } else if !rule.looks || is_shareable::<M::Threads>(words) {
            debug_assert!(
                is_shareable::<M::Threads>(words),
                "shared a table with state of one address space"
            );
            debug_assert_eq!(
                meta.owner.load(Ordering::Relaxed),
                table_owner(self.root(), 1)
            );
            debug_assert_eq!(meta.index.load(Ordering::Relaxed), start.number());
            meta.disturb();
            meta.owner.store(SHARED_OWNER, Ordering::Release);
            // From now on, the processor permits no store through this entry. The exchange keeps the accessed bit.
            slot.fetch_and(!x86_64::WRITE, Ordering::AcqRel);
            gather.record_upper_protected();
            self.state.shared.fetch_add(1, Ordering::Relaxed);
            Offered::Shared(numbers)
        } else {
            Offered::Refused
        };
        if matches!(offered, Offered::Shared(_)) {
            add_references(meta, 1);
        }
        meta.lock.unlock::<M::Threads>(Rank::TableChild);
        offered
    }

    /// Links shared tables in this address space, a child's, from `page` on. `words` are the entries above them, 0 for
    /// none.
    fn link_shared(&self, page: Page, words: &[u64], linked: u64) -> Result<(), OutOfFrames> {
        // The last table of user memory extends beyond its end.
        let end = page
            .add(words.len() as u64 * TABLE_PAGES)
            .min(Page::USER_END);
        let mut cursor = self.second_cursor(PageRange::new(page, end));
        cursor.reach_level(ABOVE)?;
        cursor.link_tables(words);
        drop(cursor);
        self.state.shared.fetch_add(linked, Ordering::Relaxed);
        self.share().count_tables::<M::Threads>(linked as i64);
        Ok(())
    }

    /// Removes the child from the address spaces that share the tables to which `words` point, because it could not
    /// link them. The tables may stay shared by one address space.
    #[cold]
    fn withdraw(&self, words: &[u64], linked: u64) {
        for word in words {
            if let Slot::Table(lower) = x86_64::slot(*word, ABOVE) {
                let meta = self.frames().meta(lower);
                meta.lock.lock::<M::Threads>(Rank::Table);
                let left = meta.references.fetch_sub(1, Ordering::AcqRel);
                debug_assert!(left > 1, "the parent shares the table");
                meta.lock.unlock::<M::Threads>(Rank::Table);
            }
        }
        self.frames().release_earmarks(linked);
    }
}

impl<M: Machine> Cursor<'_, M> {
    /// Allocates tables until the cursor is in a table at `level`.
    fn reach_level(&mut self, level: u8) -> Result<(), OutOfFrames> {
        while self.level > level {
            self.push_down()?;
        }
        Ok(())
    }

    /// Stores the upper entries `words`, 0 for none, in the locked upper table from the position on. Nothing is mapped
    /// there.
    fn link_tables(&self, words: &[u64]) {
        assert!(
            self.level == ABOVE,
            "a child has tables where it shares some"
        );
        let first = slot_index(self.position, ABOVE);
        let mut live = self.meta.live.load(Ordering::Relaxed);
        for (slot, word) in self.words[first..]
            .iter()
            .zip(words)
            .filter(|(_, word)| **word != 0)
        {
            debug_assert_eq!(slot.load(Ordering::Relaxed), 0);
            slot.store(*word, Ordering::Release);
            live += 1;
        }
        self.meta.live.store(live, Ordering::Relaxed);
    }
}

/// Whether a table was shared.
#[derive(Clone, Copy, Debug)]
enum Offered {
    /// It is shared; these are the numbers of its entries.
    Shared(u32),
    /// It has no entries, so the child needs no table.
    Empty,
    /// It cannot be shared.
    Refused,
}
