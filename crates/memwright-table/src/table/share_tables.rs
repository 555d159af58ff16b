//! Sharing the last-level tables of a parent with its child.

use core::sync::atomic::Ordering;

use super::cursor::Cursor;
use super::level::{ABOVE, ENTRIES, SHARED_OWNER, TABLE_PAGES, slot_index, table_owner};
use super::numbers::{self, Sum, TableTotals};
use super::shared::{count_entries, is_shareable, is_shared_table, stop_sharing};
use crate::addr::{Frame, Page, PageRange};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::frame::{Meta, OutOfFrames, add_references};
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::{Rank, Step, step};

/// The maximum number of tables that are shared while their upper table is locked.
const TOGETHER: usize = 256;

/// Which tables are shared, decided once per fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRule {
    /// The minimum number of entries of a table that is shared. Copying fewer entries costs less than ending the
    /// sharing of the table later.
    pub least: u32,
    /// Whether entries can have state that belongs to one address space. If they can, each entry is read, and a table
    /// with such an entry is not shared.
    pub looks: bool,
}

impl<M: Machine> Table<M> {
    /// Shares the last-level tables of this address space, from the start of `range` on, with `child`, at the same
    /// addresses. Nothing is mapped in the child there. Ends before the first table that is not shared, because it is
    /// only partly in the range, a huge page or a marker is in its place, or `rule` or the architecture does not permit
    /// sharing it. Returns the first page that was not handled, which is the end of the range if every table was
    /// shared.
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
        shared: &mut TableTotals,
        gather: &mut Gather<'_, M>,
    ) -> Result<Page, OutOfFrames> {
        let mut page = range.start;
        while M::Arch::SHARES_TABLES && page < range.end {
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
            if most == 0 || self.is_refused(above, first, rule) {
                break;
            }
            let mut words = [0; TOGETHER];
            let count = match self.frames().earmark_tables(most as u64) {
                Ok(()) => most,
                // There may be fewer tables than upper entries, so fewer frames may suffice: proceed with one upper
                // entry at a time.
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

    /// Whether the table below an entry of the upper table `above` is certainly not shared: it has too few entries, or
    /// there is a huge page or a marker instead. The areas are locked, so no thread adds entries.
    fn is_refused(&self, above: Frame, entry: usize, rule: ShareRule) -> bool {
        step::<M::Threads>(Step::Entry);
        let word = self.frames().table_words(above)[entry].load(Ordering::Acquire);
        match word::slot(word, ABOVE) {
            Slot::Table(lower) => {
                let numbers = self.frames().meta(lower).live.load(Ordering::Relaxed);
                numbers != 0 && numbers::live(numbers) < rule.least
            }
            Slot::Entry => word != 0,
        }
    }

    /// Shares with the child the tables below consecutive entries of the upper table `above`, from the entry for `page`
    /// on: one entry for each element of `words`. Counts the child among the address spaces that share the tables, and
    /// stores the child's upper entries in `words`. An element stays 0 if there is no table. Returns the number of
    /// entries before the first that cannot be shared.
    #[inline(never)]
    fn offer(
        &self,
        (above, rule): (Frame, ShareRule),
        (page, words): (Page, &mut [u64]),
        shared: &mut TableTotals,
        gather: &mut Gather<'_, M>,
    ) -> usize {
        let metas = self.frames().metas();
        let lock = &metas.get(above.number()).lock;
        let first = slot_index(page, ABOVE);
        let slots = &self.frames().table_words(above)[first..first + words.len()];
        let words = &mut words[..slots.len()];
        let most = slots.len() as u64;
        let mut sum = Sum::default();
        let mut handled = 0;
        let mut new = 0;
        // Count the tables before the first one is shared, so that other threads that lock a table look for shared ones
        // from now on.
        self.state.shared.fetch_add(most, Ordering::Relaxed);
        lock.lock::<M::Threads>(Rank::Table);
        while handled < slots.len() {
            step::<M::Threads>(Step::Entry);
            let slot = &slots[handled];
            let word = slot.load(Ordering::Acquire);
            let Slot::Table(lower) = word::slot(word, ABOVE) else {
                if word == 0 {
                    handled += 1;
                    continue;
                }
                break;
            };
            let meta = metas.get(lower.number());
            // While the upper table is locked, a shared table stays shared, because this address space cannot leave it.
            if !is_shared_table(meta) {
                if new == 0 {
                    gather.expect_upper_protected();
                }
                if !self.make_shared((slot, rule), (lower, meta)) {
                    if meta.live.load(Ordering::Relaxed) == 0 {
                        // The child needs no table.
                        handled += 1;
                        continue;
                    }
                    break;
                }
                new += 1;
            }
            add_references(meta, 1);
            sum.add(meta.live.load(Ordering::Relaxed));
            words[handled] = word::shared_table(word);
            handled += 1;
        }
        lock.unlock::<M::Threads>(Rank::Table);
        self.state.shared.fetch_sub(most - new, Ordering::Relaxed);
        gather.count_upper_protected(new);
        shared.add(sum);
        handled
    }

    /// Makes the table `lower`, to which `slot` points, shared, if `rule` permits it. No other address space shares it
    /// yet. Returns whether it is shared now.
    #[inline(always)]
    fn make_shared(
        &self,
        (slot, rule): (&SlotOf<M>, ShareRule),
        (lower, meta): (Frame, &Meta),
    ) -> bool {
        meta.lock.lock::<M::Threads>(Rank::TableChild);
        let words = || self.frames().table_words(lower);
        let numbers = meta.live.load(Ordering::Relaxed);
        debug_assert_eq!(
            numbers,
            count_entries::<M>(words()),
            "the numbers of a table are wrong"
        );
        let shares =
            numbers::live(numbers) >= rule.least && (!rule.looks || is_shareable::<M>(words()));
        if shares {
            debug_assert!(
                is_shareable::<M>(words()),
                "shared a table with state of one address space"
            );
            debug_assert_eq!(
                meta.owner.load(Ordering::Relaxed),
                table_owner(self.root(), 1)
            );
            meta.disturb();
            meta.owner.store(SHARED_OWNER, Ordering::Release);
            // From now on, the processor permits no store through this entry. The exchange keeps the accessed bit.
            word::forbid_stores(slot);
        }
        meta.lock.unlock::<M::Threads>(Rank::TableChild);
        shares
    }

    /// Links shared tables in this address space, which is a child's, from `page` on. `words` are the upper entries
    /// that point to these tables; 0 stands for no table.
    fn link_shared(&self, page: Page, words: &[u64], linked: u64) -> Result<(), OutOfFrames> {
        // The last table of user memory extends beyond the end of user memory.
        let end = page
            .add(words.len() as u64 * TABLE_PAGES)
            .min(M::Arch::USER.end);
        let mut cursor = self.second_cursor(PageRange::new(page, end));
        cursor.reach_level(ABOVE)?;
        cursor.link_tables(words, linked as u32);
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
            if let Slot::Table(lower) = word::slot(*word, ABOVE) {
                let remains = stop_sharing(self.frames().meta(lower));
                debug_assert!(remains, "the parent shares the table");
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

    /// Stores the upper entries `words` in the locked upper table from the position on, where nothing is mapped.
    /// `linked` of them point to tables, and the others are 0.
    fn link_tables(&self, words: &[u64], linked: u32) {
        assert!(
            self.level == ABOVE,
            "a child has tables where it shares some"
        );
        let first = slot_index(self.position, ABOVE);
        let slots = &self.words[first..][..words.len()];
        for index in 0..slots.len() {
            if words[index] != 0 {
                debug_assert_eq!(slots[index].load(Ordering::Relaxed), 0);
                slots[index].store(words[index], Ordering::Release);
            }
        }
        let live = self.meta.live.load(Ordering::Relaxed);
        self.meta.live.store(live + linked, Ordering::Relaxed);
    }
}
