//! Unlinking the shared tables of a range that is unmapped.

use core::sync::atomic::{AtomicU64, Ordering};

use super::drop::LeftTables;
use super::level::{ABOVE, ENTRIES, TABLE_PAGES, slot_index};
use super::shared::is_shared;
use crate::addr::{Frame, Page, PageRange};
use crate::entry::x86_64::{self, Slot};
use crate::gather::Gather;
use crate::machine::Machine;
use crate::root::Table;
use crate::sync::{Rank, Step, step};

/// The maximum number of tables that are unlinked before a flush.
const TOGETHER: usize = 64;

impl<M: Machine> Table<M> {
    /// Unlinks the shared tables that are entirely in `range`, which the caller unmaps, and flushes. A table that no
    /// other address space shares any more stays linked.
    ///
    /// # Locks
    /// The caller holds the write lock of the address space and no other lock.
    pub fn leave_tables(&self, range: PageRange, gather: &mut Gather<'_, M>) -> LeftTables {
        let mut left = LeftTables::default();
        if !self.has_shared() {
            return left;
        }
        let mut page = Page::new(range.start.number().div_ceil(TABLE_PAGES) * TABLE_PAGES);
        // The last table of user memory extends beyond its end.
        let end = if range.end == Page::USER_END {
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
        if left.tables > 0 {
            self.state.shared.fetch_sub(left.tables, Ordering::Relaxed);
            self.share()
                .count_tables::<M::Threads>(-(left.tables as i64));
        }
        left
    }

    /// Unlinks the shared tables below some entries of the upper table `above`.
    fn leave_below(
        &self,
        above: Frame,
        entries: core::ops::Range<usize>,
        left: &mut LeftTables,
        gather: &mut Gather<'_, M>,
    ) {
        let meta = self.frames().meta(above);
        let mut slots = &self.frames().table_words(above)[entries];
        while !slots.is_empty() {
            let mut tables = [Frame::new(0); TOGETHER];
            let mut count = 0;
            meta.lock.lock::<M::Threads>(Rank::Table);
            while let [slot, rest @ ..] = slots {
                if count == TOGETHER {
                    break;
                }
                if let Some(table) = self.unlink_shared(slot) {
                    tables[count] = table;
                    count += 1;
                }
                slots = rest;
            }
            if count > 0 {
                let live = meta.live.load(Ordering::Relaxed);
                meta.live.store(live - count as u32, Ordering::Relaxed);
                gather.record_left();
            }
            meta.lock.unlock::<M::Threads>(Rank::Table);
            if count > 0 {
                // The tables belong to others as soon as this address space leaves them, so no CPU may walk them for it
                // any more (rule: flush-before-leaving).
                gather.flush();
                for table in &tables[..count] {
                    self.leave_one(*table, left);
                }
            }
        }
    }

    /// If `slot` points to a table that other address spaces share, empties it and returns the table.
    fn unlink_shared(&self, slot: &AtomicU64) -> Option<Frame> {
        step::<M::Threads>(Step::Entry);
        let Slot::Table(lower) = x86_64::slot(slot.load(Ordering::Acquire), ABOVE) else {
            return None;
        };
        let meta = self.frames().meta(lower);
        if !is_shared(meta) || meta.references.load(Ordering::Acquire) == 1 {
            return None;
        }
        slot.store(0, Ordering::Release);
        Some(lower)
    }
}
