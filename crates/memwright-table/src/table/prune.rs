//! Frees tables that have become empty.

use core::sync::atomic::Ordering;

use super::cursor::Cursor;
use super::level::{ENTRIES, slot_index, slot_pages};
use super::runs::{all_empty, pass_together};
use crate::addr::{Frame, Page, PageRange, PageSize};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::Change;
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::{PausePoints, Rank};

impl<M: Machine> Table<M> {
    /// Frees every empty table below the root that covers pages of `range`, through the gather. Returns the number of
    /// freed tables. The calling thread can yield.
    ///
    /// # Locks
    /// The caller holds the write lock of the address space and no other lock.
    pub fn free_tables(&self, range: PageRange, gather: &mut Gather<'_, M>) -> u64 {
        self.prune(range, PausePoints::<M::Threads>::every(TABLES), gather)
    }

    fn prune(
        &self,
        range: PageRange,
        points: PausePoints<M::Threads>,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        let mut pruning = Pruning {
            table: self,
            gather,
            freed: 0,
            points,
        };
        pruning.free_below(self.root(), M::Arch::LEVELS, range);
        pruning.freed
    }
}

impl<M: Machine> Cursor<'_, M> {
    /// Like [`Table::free_tables`], for the range of the cursor. The thread can yield only if the cursor
    /// [pauses](Self::pausing).
    ///
    /// # Locks
    /// The caller holds the write lock of the address space.
    pub fn free_tables(mut self, gather: &mut Gather<'_, M>) -> u64 {
        if self.is_in_filled_table() {
            return 0;
        }
        self.park();
        let points = if self.pauses {
            PausePoints::<M::Threads>::every(TABLES)
        } else {
            PausePoints::<M::Threads>::never()
        };
        self.table.prune(self.range, points, gather)
    }

    /// Whether the whole range is in the last-level table that the cursor is in, and this table still has entries. If
    /// so, no table of the range is empty.
    fn is_in_filled_table(&self) -> bool {
        let last = self.range.end.number() - 1;
        self.level == 1
            && (self.range.start.number() ^ last) < ENTRIES as u64
            && self.meta.live.load(Ordering::Relaxed) != 0
    }
}

/// The number of tables between two scheduling points.
const TABLES: u32 = 128;

/// The state of freeing empty tables.
struct Pruning<'a, 'g, M: Machine> {
    table: &'a Table<M>,
    gather: &'a mut Gather<'g, M>,
    freed: u64,
    points: PausePoints<M::Threads>,
}

impl<M: Machine> Pruning<'_, '_, M> {
    /// Frees the empty tables under `node`. The recursion depth is bounded by the number of levels.
    fn free_below(&mut self, node: Frame, level: u8, range: PageRange) {
        let words = self.table.frames().table_words(node);
        let span = slot_pages(level);
        let (first, last) = (range.start, Page::new(range.end.number() - 1));
        let slots = &words[..=slot_index(last, level)];
        let mut at = slot_index(first, level);
        let mut start = Page::new(first.number() & !(span - 1));
        while let Some(slot) = slots.get(at) {
            let word = slot.load(Ordering::Acquire);
            if let Slot::Table(lower) = word::slot(word, level) {
                let below = self.table.frames().meta(lower);
                if level > 2 && below.live.load(Ordering::Relaxed) != 0 {
                    let part = PageRange::new(start, start.add(span)).intersect(range);
                    self.free_below(lower, level - 1, part);
                }
                if self.free_one(node, lower, slot, start) {
                    self.freed += 1;
                    self.gather.relieve();
                }
                self.points.round();
            }
            let next = if word == 0 {
                pass_together(slots, at + 1, all_empty::<M>)
            } else {
                at + 1
            };
            start = start.add((next - at) as u64 * span);
            at = next;
        }
    }

    /// If `lower` is empty, unlinks it from `slot` of `node` and frees it through the gather. Returns whether it was
    /// empty.
    fn free_one(&mut self, node: Frame, lower: Frame, slot: &SlotOf<M>, start: Page) -> bool {
        let frames = self.table.frames();
        let (above, below) = (frames.meta(node), frames.meta(lower));
        if below.live.load(Ordering::Relaxed) != 0 {
            return false;
        }
        above.lock.lock::<M::Threads>(Rank::Table);
        below.lock.lock::<M::Threads>(Rank::TableChild);
        let empty = below.live.load(Ordering::Relaxed) == 0;
        if empty {
            slot.store(0, Ordering::Release);
            let live = above.live.load(Ordering::Relaxed);
            above.live.store(live - 1, Ordering::Relaxed);
            // From now on no cursor accepts `lower` as a table of this root.
            below.owner.store(0, Ordering::Relaxed);
            self.table.share().count_tables::<M::Threads>(-1);
            self.gather
                .record(start, PageSize::Size4K, Change::TableFreed);
            self.gather.hold(lower);
        }
        below.lock.unlock::<M::Threads>(Rank::TableChild);
        above.lock.unlock::<M::Threads>(Rank::Table);
        empty
    }
}
