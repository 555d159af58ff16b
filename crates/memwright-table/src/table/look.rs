//! A cursor that only reads.

use crate::root::Table;
use core::sync::atomic::Ordering;

use super::cursor::{Cursor, Purpose};
use super::extent::Extent;
use super::level::slot_index;
use super::quiet::{AlikeRun, Touched, Tracked};
use super::runs::{all_empty, empty_bits, pass_alike, pass_while};
use super::shared::{count_sharers, is_shared_table};
use crate::addr::{Page, PageRange, PageSize};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::Entry;
use crate::frame::Meta;
use crate::machine::Machine;
use crate::sync::{Rank, Step, step};

/// A [`Cursor`] that changes no entry, so that a skippable table stays skippable.
#[derive(Debug)]
#[must_use = "it holds a lock"]
pub struct Look<'t, M: Machine>(Cursor<'t, M>);

impl<M: Machine> Table<M> {
    /// Returns a cursor that only reads.
    ///
    /// # Panics
    /// If the range is empty or extends beyond user memory.
    #[track_caller]
    pub fn look(&self, range: PageRange) -> Look<'_, M> {
        Look::new(self, range)
    }

    /// Returns whether the entry of every page of `range` was empty when it was read. Takes no lock of a table, so
    /// other threads may have filled entries since. May also return false if the range is in several tables.
    ///
    /// # Locks
    /// The caller holds the lock of the address space, so that no table is freed during the call.
    ///
    /// # Panics
    /// If the range is empty or extends beyond user memory.
    pub fn was_empty(&self, range: PageRange) -> bool {
        self.empty_level(range).is_some()
    }

    /// Like [`was_empty`](Self::was_empty), but returns the level of the slots of the range if all of them were empty,
    /// otherwise `None`. A level above 1 means that the range has no last-level table.
    pub(super) fn empty_level(&self, range: PageRange) -> Option<u8> {
        assert!(
            !range.is_empty() && range.end <= M::Arch::USER.end,
            "a look needs a range in user memory, not {range:?}"
        );
        let tables = self.frames().all_tables();
        let last = Page::new(range.end.number() - 1);
        let (mut node, mut level) = (self.root(), M::Arch::LEVELS);
        loop {
            let words = tables.words(node);
            // This table contains the slots of the first and the last page, because both pages have the same slot in
            // the table above.
            let (start, end) = (slot_index(range.start, level), slot_index(last, level));
            if start < end || level == 1 {
                let filled = pass_while::<M>(&words[start..=end], all_empty::<M>, |word| word == 0);
                return filled.is_empty().then_some(level);
            }
            step::<M::Threads>(Step::Entry);
            let word = words[start].load(Ordering::Acquire);
            let Slot::Table(lower) = word::slot(word, level) else {
                return (word == 0).then_some(level);
            };
            (node, level) = (lower, level - 1);
        }
    }
}

impl<M: Machine> Cursor<'_, M> {
    /// Returns a bitmap of the pages of the range whose entries are empty. Bit 0 is the first page of the range.
    ///
    /// # Panics
    /// If the range has more than 64 pages or crosses the end of a last-level table, or if the cursor is at the end of
    /// the range.
    #[inline(always)]
    pub fn empty_pages(&self) -> u64 {
        let pages = self.range.len();
        assert!(
            pages <= u64::BITS.into() && self.position < self.range.end,
            "a bitmap of at most 64 pages, not of {:?}",
            self.range
        );
        let first = slot_index(self.range.start, 1);
        if self.level == 1 {
            return empty_bits::<M>(&self.words[first..first + pages as usize]);
        }
        let inside = first + pages as usize <= self.words.len();
        assert!(inside, "{:?} is in two tables", self.range);
        match self.word() {
            0 => u64::MAX >> (u64::from(u64::BITS) - pages),
            _ => 0,
        }
    }
}

impl<'t, M: Machine> Look<'t, M> {
    #[track_caller]
    fn new(table: &'t Table<M>, range: PageRange) -> Self {
        Self(Cursor::new(
            table,
            range,
            range.start,
            Rank::Table,
            Purpose::Look,
        ))
    }

    /// Like [`Cursor::pausing`].
    pub fn pausing(self) -> Self {
        Self(self.0.pausing())
    }

    /// Like [`Cursor::size`].
    #[inline]
    pub fn size(&self) -> PageSize {
        self.0.size()
    }

    /// Like [`Cursor::locked_end`].
    #[inline]
    pub fn locked_end(&self) -> Page {
        self.0.locked_end()
    }

    /// Like [`Cursor::entry`].
    ///
    /// # Panics
    /// If the cursor is at the end of its range.
    #[inline]
    pub fn entry(&self) -> Extent {
        self.shown(self.0.entry())
    }

    /// Like [`peek`](Self::peek), for callers that do not use the rights of the page: a page of a shared table may be
    /// shown as exclusive or writable.
    ///
    /// # Panics
    /// If the cursor is at the end of its range.
    #[inline]
    pub fn peek_raw(&self) -> Entry {
        self.0.peek()
    }

    /// Like [`Cursor::peek`].
    ///
    /// # Panics
    /// If the cursor is at the end of its range.
    #[inline]
    pub fn peek(&self) -> Entry {
        if is_shared_table(self.0.meta) {
            return self.entry().entry;
        }
        self.0.peek()
    }

    /// Returns the slot here as a run of one slot, clipped to the range.
    ///
    /// # Panics
    /// If the cursor is at the end of its range.
    pub fn run_here(&self) -> AlikeRun {
        run_at(&self.0)
    }

    /// Like [`Cursor::empty_pages`].
    ///
    /// # Panics
    /// As [`Cursor::empty_pages`].
    pub fn empty_pages(&self) -> u64 {
        self.0.empty_pages()
    }

    /// Like [`Cursor::advance`].
    pub fn advance(&mut self) -> bool {
        self.0.advance()
    }

    /// Like [`Cursor::next_filled`].
    pub fn next_filled(&mut self) -> Option<Extent> {
        let extent = self.0.next_filled()?;
        Some(self.shown(extent))
    }

    /// Returns an entry of the locked table. If the table is shared, the page is shown as neither exclusive nor
    /// writable.
    #[inline]
    fn shown(&self, extent: Extent) -> Extent {
        if is_shared_table(self.0.meta) {
            of_shared(extent)
        } else {
            extent
        }
    }

    /// Calls `visitor` with every slot that is not empty, from the position to the end of the range, until `visitor`
    /// returns false. The second argument is the number of other address spaces that share the table of the slot. The
    /// position is unspecified afterwards.
    pub fn each_filled(&mut self, mut visitor: impl FnMut(Extent, u32) -> bool) {
        let cursor = &mut self.0;
        while let Some(extent) = cursor.next_filled() {
            if cursor.level > 1 {
                if !visitor(extent, 0) || !cursor.advance() {
                    return;
                }
                continue;
            }
            let end = cursor.table_end(cursor.range.end);
            let others = count_sharers(cursor.meta).saturating_sub(1);
            for (page, slot) in (cursor.position.number()..).zip(cursor.slots_to(end)) {
                step::<M::Threads>(Step::Entry);
                let word = slot.load(Ordering::Acquire);
                if word == 0 {
                    continue;
                }
                let extent = Extent {
                    entry: word::decode(shown_word(cursor.meta, word), 1),
                    range: PageRange::single(Page::new(page)),
                    size: PageSize::Size4K,
                };
                if !visitor(extent, others) {
                    return;
                }
            }
            cursor.go(end);
        }
    }

    /// Calls `visitor` with every run from the position to the end of the range, until `visitor` returns false. A run
    /// is consecutive slots whose entries differ only in their frames or swap slots. It ends at the end of the
    /// last-level table at the latest; in an upper-level table, each slot is a run. If `singly` is true, each page is a
    /// run. The position is unspecified afterwards.
    pub fn each_alike(&mut self, singly: bool, mut visitor: impl FnMut(AlikeRun) -> bool) {
        let cursor = &mut self.0;
        while cursor.position < cursor.range.end {
            if cursor.level > 1 {
                if !visitor(run_at(cursor)) {
                    return;
                }
                cursor.advance();
                continue;
            }
            let end = cursor.table_end(cursor.range.end);
            let mut start = cursor.position;
            let mut slots = cursor.slots_to(end);
            while let [first, others @ ..] = slots {
                step::<M::Threads>(Step::Entry);
                let word = first.load(Ordering::Acquire);
                let rest = if word == 0 {
                    pass_while::<M>(others, all_empty::<M>, |word| word == 0)
                } else if singly && word::is_present(word) {
                    others
                } else {
                    // The run has at least the first entry, even if hardware has changed it in the meantime.
                    pass_alike::<M>(others, word::attributes(word))
                };
                let next = start.add((slots.len() - rest.len()) as u64);
                let word = shown_word(cursor.meta, word);
                if !visitor(AlikeRun::new(PageRange::new(start, next), word, 1)) {
                    return;
                }
                (start, slots) = (next, rest);
            }
            cursor.go(end);
        }
    }

    /// Like [`Cursor::touched`] for [`Tracked::Accesses`].
    ///
    /// # Panics
    /// If the cursor is not in a last-level table that contains `from` and the pages up to `limit`.
    #[inline]
    pub fn accessed(&self, from: Page, limit: Page, alike: bool) -> Touched<'t, M> {
        self.0.touched(from, limit, alike, Tracked::Accesses)
    }
}

/// Returns an entry of a shared table, with its page as neither exclusive nor writable.
#[cold]
#[inline(never)]
fn of_shared(extent: Extent) -> Extent {
    Extent {
        entry: word::decode(word::as_shared(word::encode(extent.entry)), 1),
        ..extent
    }
}

/// Returns the entry `word` of the locked table. If the table is shared, the page is shown as neither exclusive nor
/// writable.
#[inline]
fn shown_word(meta: &Meta, word: u64) -> u64 {
    if is_shared_table(meta) {
        word::as_shared(word)
    } else {
        word
    }
}

fn run_at<M: Machine>(cursor: &Cursor<'_, M>) -> AlikeRun {
    AlikeRun::new(
        cursor.entry().range,
        shown_word(cursor.meta, cursor.word()),
        cursor.level,
    )
}
