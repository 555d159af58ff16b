//! Unlinking the shared tables of a range that is unmapped.

use core::sync::atomic::Ordering;

use super::level::{ABOVE, ENTRIES, TABLE_PAGES, slot_index};
use super::numbers::{Sum, TableTotals};
use super::shared::{count_empty, is_shared_table, stop_sharing_unlinked};
use crate::addr::{Frame, Page, PageRange};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::frame::Meta;
use crate::gather::Gather;
use crate::machine::Machine;
use crate::root::Table;
use crate::sync::{Rank, Step, pause_point, step};

/// The maximum number of tables that are unlinked before a flush.
const TOGETHER: usize = 128;

impl<M: Machine> Table<M> {
    /// Unlinks the shared tables that are entirely in `range`, which the caller unmaps, and flushes. If no other
    /// address space shares a table any more, drops the table with all of its entries, and counts the entries in the
    /// gather. Returns the numbers of entries of the tables that other address spaces still share.
    ///
    /// # Locks
    /// The caller holds the write lock of the address space and no other lock.
    pub fn leave_tables(&self, range: PageRange, gather: &mut Gather<'_, M>) -> TableTotals {
        let mut left = TableTotals::default();
        if !self.has_shared() {
            return left;
        }
        let mut page = Page::new(range.start.number().div_ceil(TABLE_PAGES) * TABLE_PAGES);
        // The last table of user memory extends beyond the end of user memory.
        let end = if range.end == M::Arch::USER.end {
            Page::new(range.end.number().next_multiple_of(TABLE_PAGES))
        } else {
            range.end
        };
        while page.add(TABLE_PAGES) <= end {
            let above = match self.upper_table(page) {
                Ok(above) => above,
                Err(next) => {
                    page = next;
                    continue;
                }
            };
            let first = slot_index(page, ABOVE);
            let whole = ((end.number() - page.number()) / TABLE_PAGES) as usize;
            let count = whole.min(ENTRIES - first);
            self.leave_below(above, first..first + count, &mut left, gather);
            page = page.add(count as u64 * TABLE_PAGES);
        }
        left
    }

    /// Unlinks the shared tables below `entries` of the upper table `above`.
    #[inline(never)]
    fn leave_below(
        &self,
        above: Frame,
        entries: core::ops::Range<usize>,
        left: &mut TableTotals,
        gather: &mut Gather<'_, M>,
    ) {
        let metas = self.frames().metas();
        let meta = metas.get(above.number());
        let mut rest = &self.frames().table_words(above)[entries];
        let mut tables = [meta; TOGETHER];
        loop {
            rest = &rest[count_empty::<M>(rest)..];
            if rest.is_empty() {
                return;
            }
            let (slots, others) = rest.split_at(rest.len().min(TOGETHER));
            rest = others;
            let mut count = 0;
            meta.lock.lock::<M::Threads>(Rank::Table);
            for slot in slots {
                step::<M::Threads>(Step::Entry);
                let word = slot.load(Ordering::Acquire);
                if let Slot::Table(lower) = word::slot(word, ABOVE) {
                    let lower = metas.get(lower.number());
                    if is_shared_table(lower) {
                        slot.store(0, Ordering::Release);
                        tables[count] = lower;
                        count += 1;
                    }
                }
            }
            if count > 0 {
                let live = meta.live.load(Ordering::Relaxed);
                meta.live.store(live - count as u32, Ordering::Relaxed);
                gather.record_left();
            }
            meta.lock.unlock::<M::Threads>(Rank::Table);
            if count > 0 {
                // After this address space has left the tables, another one can own and change them. So no CPU may walk
                // them for this address space any more (rule: flush-before-leaving).
                gather.flush();
                self.leave(&tables[..count], left, gather);
            }
        }
    }

    /// Stops sharing `tables`, which are unlinked, so that no CPU walks them for this address space any more. Drops
    /// those that no other address space shares.
    #[inline(always)]
    fn leave(&self, tables: &[&Meta], left: &mut TableTotals, gather: &mut Gather<'_, M>) {
        let mut sum = Sum::default();
        let count = tables.len() as u64;
        self.state.shared.fetch_sub(count, Ordering::Relaxed);
        self.share().count_tables::<M::Threads>(-(count as i64));
        let mut last = 0;
        for meta in tables {
            let numbers = meta.live.load(Ordering::Relaxed);
            if stop_sharing_unlinked(meta) {
                sum.add(numbers);
            } else {
                last += 1;
                let table = self.frames().metas().frame_of(meta);
                gather.note_dropped(self.drop_last_shared(table));
                pause_point::<M::Threads>();
            }
        }
        left.add(sum);
        self.frames().release_earmarks(count - last);
    }
}
