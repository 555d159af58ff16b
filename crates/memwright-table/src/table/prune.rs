//! Frees tables that have become empty, and whole last-level tables with their entries.
//!
//! A last-level table is *cut* if all of its pages are unmapped: it is unlinked before its entries are removed. After
//! one flush, no CPU walks it, and no translation that a CPU cached of its pages remains. The references that the
//! entries hold are then dropped in one pass over the words, without an atomic operation on any entry and without a
//! list of the frames.

use core::sync::atomic::Ordering;

use super::cursor::Cursor;
use super::level::{ABOVE, ENTRIES, TABLE_PAGES, slot_index, slot_pages};
use super::numbers;
use super::runs::{all_empty, are_pages, none_present, pass_together};
use super::shared::is_shared_table;
use crate::addr::{Frame, Page, PageRange, PageSize};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::Change;
use crate::frame::{END, UNLINKED};
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::{PausePoints, Rank, pause_point};

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
        let mut pruning = Pruning::new(self, points, false, gather);
        pruning.free_below(self.root(), M::Arch::LEVELS, range);
        pruning.freed
    }

    /// Cuts the last-level tables that are entirely in `range`, which the caller unmaps, and frees the tables above
    /// them that become empty. The caller then calls [`drop_cut`](Self::drop_cut). Keeps shared tables. Without the
    /// feature `inline`, also keeps all tables that are not empty. The calling thread can yield.
    ///
    /// # Locks
    /// The caller holds the write lock of the address space and no other lock.
    pub fn cut_tables(&self, range: PageRange, gather: &mut Gather<'_, M>) -> CutTables {
        // Pages that another operation has removed but not flushed yet must not be accessible either (rule:
        // see-pending-flushes).
        gather.rely_on_pending();
        let points = PausePoints::<M::Threads>::every(TABLES);
        let mut pruning = Pruning::new(self, points, true, gather);
        pruning.free_below(self.root(), M::Arch::LEVELS, range);
        pruning.cut
    }

    /// Flushes, and then drops the tables that were cut, with their entries. The calling thread can yield.
    ///
    /// # Locks
    /// As for [`cut_tables`](Self::cut_tables).
    pub fn drop_cut(&self, mut cut: CutTables, gather: &mut Gather<'_, M>) {
        if cfg!(not(feature = "inline")) || cut.head == END {
            return;
        }
        gather.flush();
        while cut.head != END {
            let table = Frame::new(cut.head);
            let meta = self.frames().meta(table);
            cut.head = meta.link();
            meta.set_link(UNLINKED);
            gather.note_dropped(self.drop_last_level(table));
            gather.note_table_dropped();
            // A table whose pages have copies in swap can take as long to drop as hundreds of other tables.
            pause_point::<M::Threads>();
        }
    }

    /// Whether the root has no entries: nothing is mapped, and there are no other tables.
    pub fn is_bare(&self) -> bool {
        self.frames().meta(self.root()).live.load(Ordering::Relaxed) == 0
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

    /// Whether the whole range is in the last-level table that the cursor is in, and this table still has entries. The
    /// range then has no empty table.
    fn is_in_filled_table(&self) -> bool {
        let last = self.range.end.number() - 1;
        self.level == 1
            && (self.range.start.number() ^ last) < ENTRIES as u64
            && self.meta.live.load(Ordering::Relaxed) != 0
    }
}

/// The number of tables between two scheduling points.
const TABLES: u32 = 128;

/// Tables that were cut and not dropped yet, linked through their metadata.
#[must_use = "call `drop_cut`: the tables leak otherwise"]
#[derive(Debug)]
pub struct CutTables {
    /// The first table.
    head: u32,
    /// The number of references that the entries hold.
    pages: u32,
}

impl CutTables {
    const NONE: Self = Self {
        head: END,
        pages: 0,
    };
}

/// The state of freeing tables.
struct Pruning<'a, 'g, M: Machine> {
    table: &'a Table<M>,
    gather: &'a mut Gather<'g, M>,
    freed: u64,
    points: PausePoints<M::Threads>,
    /// Whether whole last-level tables are freed with their entries.
    cuts: bool,
    /// The tables that were cut and not dropped yet.
    cut: CutTables,
}

impl<'a, 'g, M: Machine> Pruning<'a, 'g, M> {
    fn new(
        table: &'a Table<M>,
        points: PausePoints<M::Threads>,
        cuts: bool,
        gather: &'a mut Gather<'g, M>,
    ) -> Self {
        Self {
            table,
            gather,
            freed: 0,
            points,
            // Without the feature `inline`, the image contains no code for cuts, so that it is small.
            cuts: cuts && cfg!(feature = "inline"),
            cut: CutTables::NONE,
        }
    }

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
                let cuts = cfg!(feature = "inline")
                    && self.cuts
                    && level == ABOVE
                    && is_whole::<M>(start, range);
                if self.free_one((node, slot), lower, start, cuts) {
                    self.freed += 1;
                    self.gather.relieve();
                    if cuts {
                        self.relieve();
                    }
                }
                self.points.round();
            }
            let next = if word == 0 {
                pass_together(slots, at + 1, all_empty::<M>)
            } else if cfg!(feature = "inline") && word::slot(word, level) == Slot::Entry {
                pass_leaves::<M>(slots, at, word, level)
            } else {
                at + 1
            };
            start = start.add((next - at) as u64 * span);
            at = next;
        }
    }

    /// Unlinks `lower` from `slot` of `node` if it is empty, or if `cuts` is true and it is not shared. Frees it after
    /// the flush of the gather. Returns whether it was unlinked.
    fn free_one(
        &mut self,
        (node, slot): (Frame, &SlotOf<M>),
        lower: Frame,
        start: Page,
        cuts: bool,
    ) -> bool {
        let frames = self.table.frames();
        let (above, below) = (frames.meta(node), frames.meta(lower));
        let cuts = cuts && !is_shared_table(below);
        if !cuts && below.live.load(Ordering::Relaxed) != 0 {
            return false;
        }
        above.lock.lock::<M::Threads>(Rank::Table);
        below.lock.lock::<M::Threads>(Rank::TableChild);
        let numbers = below.live.load(Ordering::Relaxed);
        let unlinks = cuts || numbers == 0;
        if unlinks {
            slot.store(0, Ordering::Release);
            let live = above.live.load(Ordering::Relaxed);
            above.live.store(live - 1, Ordering::Relaxed);
            // From now on no cursor accepts `lower` as a table of this root.
            below.owner.store(0, Ordering::Relaxed);
            self.table.share().count_tables::<M::Threads>(-1);
            self.gather
                .record(start, PageSize::Size4K, Change::TableFreed);
            if cuts {
                below.set_link(self.cut.head);
                self.cut.head = lower.number();
                self.cut.pages += numbers::counted(numbers);
            } else {
                self.gather.hold(lower);
            }
        }
        below.lock.unlock::<M::Threads>(Rank::TableChild);
        above.lock.unlock::<M::Threads>(Rank::Table);
        unlinks
    }

    /// Drops the tables that were cut if their entries hold too many references.
    fn relieve(&mut self) {
        if self.gather.is_too_much(self.cut.pages) {
            self.gather.count_early();
            let cut = core::mem::replace(&mut self.cut, CutTables::NONE);
            self.table.drop_cut(cut, self.gather);
        }
    }
}

/// Returns the index of the slot after the leaf `word` at the index `at`, and after the groups of such leaves that
/// directly follow it.
#[inline(never)]
fn pass_leaves<M: Machine>(slots: &[SlotOf<M>], at: usize, word: u64, level: u8) -> usize {
    if word::is_present(word) {
        pass_together(slots, at + 1, |some| are_pages::<M>(some, level))
    } else {
        pass_together(slots, at + 1, none_present::<M>)
    }
}

/// Whether `range` contains all pages of the last-level table for the pages from `start` on. The last table of user
/// memory extends beyond the end of user memory, so its pages beyond the end need not be in `range`.
fn is_whole<M: Machine>(start: Page, range: PageRange) -> bool {
    start >= range.start && (start.add(TABLE_PAGES) <= range.end || range.end == M::Arch::USER.end)
}
