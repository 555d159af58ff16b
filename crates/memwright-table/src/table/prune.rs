//! Freeing tables that have become empty.

use core::sync::atomic::Ordering;

use super::cursor::Cursor;
use super::runs::{all_empty, pass_together};
use super::{ENTRIES, ROOT_LEVEL, Table, slot_index, slot_pages};
use crate::addr::{Frame, Page, PageRange, PageSize};
use crate::entry::Change;
use crate::entry::x86_64::{self, Slot};
use crate::gather::Gather;
use crate::machine::Machine;

impl<M: Machine> Cursor<'_, M> {
    /// Frees every empty table that has a slot in the range, through the gather. The caller holds
    /// the write lock of the address space. Returns how many were freed. The cursor stays at its
    /// position.
    pub fn free_tables(&mut self, gather: &mut Gather<'_, M>) -> u64 {
        if self.is_in_filled_table() {
            return 0;
        }
        self.park();
        let freed = free_below(
            self.table,
            self.table.root(),
            ROOT_LEVEL,
            self.range,
            gather,
        );
        self.go(self.position);
        freed
    }

    /// Whether the range lies in one lowest table, the one where the cursor stood last, and that holds
    /// entries still: then none of its tables is empty.
    fn is_in_filled_table(&self) -> bool {
        let last = self.range.end.number() - 1;
        self.level == 1
            && (self.range.start.number() ^ last) < ENTRIES as u64
            && self.meta.live.load(Ordering::Relaxed) != 0
    }
}

/// Frees the empty tables under `node`.
fn free_below<M: Machine>(
    table: &Table<M>,
    node: Frame,
    level: u8,
    range: PageRange,
    gather: &mut Gather<'_, M>,
) -> u64 {
    let words = table.frames().table_words(node);
    let span = slot_pages(level);
    let (first, last) = (range.start, Page::new(range.end.number() - 1));
    let slots = &words[..=slot_index(last, level)];
    let (mut at, mut freed) = (slot_index(first, level), 0);
    let mut start = Page::new(first.number() & !(span - 1));
    while let Some(slot) = slots.get(at) {
        let word = slot.load(Ordering::Acquire);
        if let Slot::Table(lower) = x86_64::slot(word, level) {
            if level > 2 {
                let part = PageRange::new(start, start.add(span)).intersect(range);
                freed += free_below(table, lower, level - 1, part, gather);
            }
            freed += u64::from(free_one(table, node, lower, slot, start, gather));
        }
        let next = if word == 0 {
            pass_together(slots, at + 1, all_empty)
        } else {
            at + 1
        };
        start = start.add((next - at) as u64 * span);
        at = next;
    }
    freed
}

/// Unlinks `lower` from `slot` of `node` if it is empty.
fn free_one<M: Machine>(
    table: &Table<M>,
    node: Frame,
    lower: Frame,
    slot: &core::sync::atomic::AtomicU64,
    start: Page,
    gather: &mut Gather<'_, M>,
) -> bool {
    let frames = table.frames();
    let (above, below) = (frames.meta(node), frames.meta(lower));
    if below.live.load(Ordering::Relaxed) != 0 {
        return false;
    }
    above.lock.lock(crate::sync::Rank::Table);
    below.lock.lock(crate::sync::Rank::TableChild);
    let empty = below.live.load(Ordering::Relaxed) == 0;
    if empty {
        slot.store(0, Ordering::Release);
        let live = above.live.load(Ordering::Relaxed);
        above.live.store(live - 1, Ordering::Relaxed);
        // No cursor takes it for a table of this root any more.
        below.owner.store(0, Ordering::Relaxed);
        table.share().count_tables(-1);
        gather.record(start, PageSize::Size4K, Change::TableFreed);
        gather.hold(lower);
    }
    below.lock.unlock(crate::sync::Rank::TableChild);
    above.lock.unlock(crate::sync::Rank::Table);
    empty
}
