//! Skippable tables: last-level tables that a scan for written or accessed pages can skip without reading their
//! entries, because it would find no such page.
//!
//! A last-level table is *skippable* if a check found every entry untouched, and no page of the table can have been
//! touched since. Untouched means unwritten (`QUIET`) or unaccessed (`STILL`), depending on [`Tracked`]. Both
//! processors and software can touch a page.
//!
//! - **A processor** that uses a page of the table sets the accessed bit of the upper entry that points to the table.
//!   It does not set the bit if it has cached a translation through that entry, or the entry itself in a
//!   paging-structure cache. But it caches neither while the bit is clear ("the processor does not cache" either
//!   "unless the accessed flag is 1", Intel SDM volume 3A, sections on TLBs and on paging-structure caches, in
//!   substance). A scan that write-protects pages therefore first clears that accessed bit ([`Table::settle`]), then
//!   flushes all levels on every CPU, and only then checks the entries. The check finds each page that is written
//!   before the flush. A write after the flush sets the accessed bit of the upper entry.
//! - **Software** that writes an entry holds the table's lock. Every acquisition of the lock by a cursor that can
//!   change entries makes the table no longer skippable, so that no code path can omit this. The exception is the
//!   cursor of a scan ([`Table::scanning_cursor`]), which records its own result. Only the check makes the table
//!   skippable, while it holds the lock.
//!
//! A call that arms pages against accesses discards earlier accesses, so it needs no check after the flush: it clears
//! the accessed bit of the upper entry, arms the entries, and flushes before it returns. An access through a cached
//! translation precedes the flush, and therefore the return of the call. Such an access may still set the accessed bit
//! of its page. A later scan then reports this page if it reads the table, that is, if another page of the table was
//! accessed.
//!
//! A table in which the dirty bit of every entry reports stores is also *dirty-tracked* (`WATCHED`), until software
//! locks it. The dirty bits alone then determine which pages were written, even if reads have set the accessed bit of
//! the upper entry. Likewise, the accessed bits alone determine which pages were accessed if every page of the table
//! was armed by its accessed bit (`IDLE`).
//!
//! Two scans may run at the same time. The second may find the accessed bit of the upper entry already clear while the
//! first has not flushed yet, so that a processor may still write without setting the bit. Therefore the first scan
//! records its pending flush before it clears the bit, while it holds the table's lock. The second scan checks the
//! entries under the same lock, finds the pending flush, and does not make the table skippable. The next scan checks
//! the table again.
//!
//! Only these scans read the accessed bits of upper entries. Other code that clears such a bit must hold the table's
//! lock, whose acquisition clears `QUIET`, and must flush in the same way (rule: fold-before-clearing).

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use super::batch::{Alike, Editor};
use super::cursor::Cursor;
use super::level::{ABOVE, TABLE_PAGES, slot_index, slot_pages, table_owner};
use super::runs::{TOGETHER, every_bit, pass_alike, pass_clear, pass_while, some_bits};
use crate::addr::{Page, PageRange, PageSize};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::{Bits, Entry, Marker, Marks};
use crate::frame::Meta;
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::{Rank, Step, step};
use crate::table::{Edit, Edited};

/// In [`Meta::quiet`]: a check found every entry unwritten, and any write since has set the accessed bit of the upper
/// entry.
const QUIET: u32 = 1;
/// In [`Meta::quiet`]: a check found every entry unaccessed, and any access since has set the accessed bit of the upper
/// entry.
const STILL: u32 = 1 << 2;
/// In [`Meta::quiet`]: the dirty bit of every entry records whether the page was written.
const WATCHED: u32 = 1 << 1;
/// In [`Meta::quiet`]: the accessed bit of every entry records whether the page was accessed since it was armed.
const IDLE: u32 = 1 << 3;

/// The kind of pages that a scan searches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// Pages that were written since they were write-protected.
    Stores,
    /// Pages that were accessed since they were armed against accesses.
    Accesses,
    /// Pages that are not armed: the accessed bits of their entries do not report the next access, because the page was
    /// already accessed or because an access faults.
    Unarmed,
}

impl Tracked {
    /// The bit in [`Meta::quiet`] that is set if no page of the table was touched.
    #[inline(always)]
    const fn skippable(self) -> u32 {
        match self {
            Self::Stores => QUIET,
            Self::Accesses | Self::Unarmed => STILL,
        }
    }

    /// Whether the entry proves that its page is untouched.
    #[inline(always)]
    fn is_untouched(self, word: u64) -> bool {
        match self {
            Self::Stores => word::is_unwritten(word),
            Self::Accesses => word::is_unaccessed(word),
            Self::Unarmed => word::is_idle(word),
        }
    }
}

/// Consecutive slots whose entries differ only in their frames or swap slots.
#[derive(Clone, Copy, Debug)]
pub struct AlikeRun {
    /// The pages that the slots cover, clipped to the range of the cursor.
    pub range: PageRange,
    word: u64,
    level: u8,
}

impl AlikeRun {
    #[inline]
    pub(super) const fn new(range: PageRange, word: u64, level: u8) -> Self {
        Self { range, word, level }
    }

    /// The entry of the first slot.
    #[inline]
    pub fn entry(&self) -> Entry {
        word::decode(self.word, self.level)
    }

    /// The size of the page that a slot can map.
    #[inline]
    pub fn size(&self) -> PageSize {
        word::size(self.level)
    }

    /// Whether the entries of both runs differ only in their frames or swap slots.
    #[inline]
    pub fn is_like(&self, other: &Self) -> bool {
        self.level == other.level && word::attributes(self.word) == word::attributes(other.word)
    }
}

/// An iterator over the touched entries of a last-level table; see [`Cursor::touched`].
#[derive(Debug)]
pub struct Touched<'t, M: Machine> {
    /// The slots that have not been read yet. The slots before them are untouched or have been returned.
    rest: &'t [SlotOf<M>],
    /// The page after the last slot.
    limit: Page,
    tracked: Tracked,
    alike: bool,
    /// Whether the accessed or dirty bits alone determine which pages were touched (see the module documentation).
    bits_tell: bool,
    machine: PhantomData<fn() -> M>,
}

impl<'t, M: Machine> Touched<'t, M> {
    /// The page of the first slot that has not been read yet.
    #[inline(always)]
    fn page(&self) -> Page {
        Page::new(self.limit.number() - self.rest.len() as u64)
    }

    /// Skips the untouched slots at the start of `rest`. Returns the first slot after them, or `None` if all slots are
    /// untouched.
    #[inline(always)]
    fn first(&mut self) -> Option<&'t SlotOf<M>> {
        let slots = self.rest;
        self.rest = match self.tracked {
            Tracked::Stores if self.bits_tell => pass_clear::<M>(slots, word::mask(Bits::DIRTY)),
            Tracked::Stores => pass_while::<M>(slots, all_unwritten::<M>, word::is_unwritten),
            Tracked::Accesses | Tracked::Unarmed if self.bits_tell => {
                pass_clear::<M>(slots, word::mask(Bits::ACCESSED))
            }
            Tracked::Accesses => pass_while::<M>(slots, all_unaccessed::<M>, word::is_unaccessed),
            Tracked::Unarmed => pass_while::<M>(slots, all_idle::<M>, word::is_idle),
        };
        self.rest.first()
    }

    /// Moves past `slots` slots.
    #[inline(always)]
    fn consume(&mut self, slots: usize) {
        self.rest = self.rest.get(slots..).unwrap_or_default();
    }
}

impl<M: Machine> Iterator for Touched<'_, M> {
    type Item = AlikeRun;

    #[inline(always)]
    fn next(&mut self) -> Option<AlikeRun> {
        let word = self.first()?.load(Ordering::Relaxed);
        let start = self.page();
        // The run has at least one page, even if hardware has changed the first entry in the meantime.
        self.consume(1);
        if self.alike && word::is_present(word) {
            self.rest = pass_alike::<M>(self.rest, word::attributes(word));
        }
        let range = PageRange::new(start, self.page());
        Some(AlikeRun::new(range, word, 1))
    }
}

/// A prepared edit of pages with the attributes of an [`AlikeRun`].
#[derive(Clone, Copy, Debug)]
pub struct Prepared(Alike);

impl Prepared {
    /// Whether the edit changes any bit.
    pub fn changes(&self) -> bool {
        self.0.changes()
    }
}

/// The pages that [`Cursor::edit_written`] has edited.
#[derive(Clone, Copy, Debug)]
pub struct EditedRuns {
    /// The number of pages.
    pub pages: u64,
    /// The number of runs of consecutive pages.
    pub runs: usize,
    /// The first page that was not looked at.
    pub end: Page,
}

impl Meta {
    /// Makes a table no longer skippable, because the caller, which locks it, may change its entries.
    #[inline(always)]
    pub(crate) fn disturb(&self) {
        self.quiet.store(0, Ordering::Relaxed);
    }
}

impl<M: Machine> Table<M> {
    /// Returns the entries that point to last-level tables, from the entry for `page` to the end of its table, or
    /// `None` if there is no such table.
    fn entries_above(&self, page: Page) -> Option<&[SlotOf<M>]> {
        let above = self.upper_table(page).ok()?;
        Some(&self.frames().table_words(above)[slot_index(page, ABOVE)..])
    }

    /// Skips, from the start of `range`, whole last-level tables that are skippable, and entries of the level above
    /// that are untouched and refer to no table. Stops at the first table or entry that cannot be skipped, and returns
    /// its first page, or returns the end of `range` if all were skipped. Skips no table and no entry that is only
    /// partly in the range.
    ///
    /// # Locks
    /// The caller holds the lock of the address space, so that no table is freed during the call.
    pub fn pass_quiet(&self, range: PageRange, tracked: Tracked) -> Page {
        let tables = self.frames().all_tables();
        let skippable = tracked.skippable();
        let mut page = range.start;
        while page.number() % TABLE_PAGES == 0 && page.add(TABLE_PAGES) <= range.end {
            let Some(slots) = self.entries_above(page) else {
                break;
            };
            let whole = (range.end.number() - page.number()) / TABLE_PAGES;
            let slots = &slots[..slots.len().min(whole as usize)];
            let quiet = slots.iter().take_while(|slot| {
                step::<M::Threads>(Step::Entry);
                let word = slot.load(Ordering::Acquire);
                match word::slot(word, ABOVE) {
                    Slot::Table(lower) => {
                        word::is_uncached(word)
                            && tables.meta(lower).quiet.load(Ordering::Acquire) & skippable != 0
                    }
                    Slot::Entry => tracked.is_untouched(word),
                }
            });
            let quiet = quiet.count();
            page = page.add(quiet as u64 * TABLE_PAGES);
            if quiet < slots.len() {
                break;
            }
        }
        page
    }

    /// Clears the accessed bits of the upper entries that point to tables entirely in `range`, and records the flush
    /// that this needs. The caller must flush before it checks the entries. Returns the first page of the range that
    /// must be checked. The pages before it can be skipped, because [`pass_quiet`](Self::pass_quiet) would skip them.
    ///
    /// # Locks
    /// The caller holds the address space's lock.
    pub fn settle(&self, range: PageRange, tracked: Tracked, gather: &mut Gather<'_, M>) -> Page {
        let first = self.pass_quiet(range, tracked);
        let end = range.end.number() & !(TABLE_PAGES - 1);
        let mut page = first.number().div_ceil(TABLE_PAGES) * TABLE_PAGES;
        while page < end {
            let Some(slots) = self.entries_above(Page::new(page)) else {
                // Continue at the next entry of the level above.
                let span = slot_pages(ABOVE + 1);
                page = (page / span + 1) * span;
                continue;
            };
            let whole = ((end - page) / TABLE_PAGES) as usize;
            for slot in &slots[..slots.len().min(whole)] {
                self.settle_one(slot, Page::new(page), gather);
                page += TABLE_PAGES;
            }
        }
        first
    }

    fn settle_one(&self, slot: &SlotOf<M>, start: Page, gather: &mut Gather<'_, M>) {
        step::<M::Threads>(Step::Entry);
        let word = slot.load(Ordering::Relaxed);
        let Slot::Table(lower) = word::slot(word, ABOVE) else {
            return;
        };
        if word::is_uncached(word) {
            return;
        }
        let meta = self.frames().meta(lower);
        meta.lock.lock::<M::Threads>(Rank::Table);
        let is_here = meta.is_table()
            && meta.owner.load(Ordering::Relaxed) == table_owner(self.root(), 1)
            && meta.index.load(Ordering::Relaxed) == start.number();
        if is_here {
            let told = meta.quiet.load(Ordering::Relaxed);
            meta.quiet.store(told & !(QUIET | STILL), Ordering::Relaxed);
            gather.record_upper_cleared();
            // The exchange fails if the entry has changed. If it now points to another table, that table is not
            // skippable either.
            let clear = word & !word::mask(Bits::ACCESSED);
            let _ = slot.exchange(word, clear);
        }
        meta.lock.unlock::<M::Threads>(Rank::Table);
    }
}

impl<'t, M: Machine> Cursor<'t, M> {
    /// Whether the last-level table here may become skippable after the check (see the module documentation). The
    /// cursor must be at the start of the table, the table must be entirely in the range, and no other gather may have
    /// a pending flush: such a flush means that a CPU may still use a page without setting the accessed bit of the
    /// upper entry. On an architecture without accessed bits in upper entries, always false.
    pub fn may_become_quiet(&self, gather: &Gather<'_, M>) -> bool {
        let start = self.position();
        M::Arch::SKIPS_TABLES
            && self.level == 1
            && start.number() % TABLE_PAGES == 0
            && start.add(TABLE_PAGES) <= self.range().end
            && !gather.others_pending()
    }

    /// Records, after a check of the locked last-level table, whether the table is skippable. `quiet` must be true only
    /// if every entry is untouched now and [`may_become_quiet`](Self::may_become_quiet) returned true before the check.
    ///
    /// # Panics
    /// If the cursor is not in a last-level table.
    pub fn end_look(&mut self, tracked: Tracked, quiet: bool) {
        assert!(self.level == 1, "only a lowest table is quiet");
        let bits_tell = match tracked {
            Tracked::Stores if self.is_watched() || (quiet && every_watched::<M>(self.words)) => {
                WATCHED
            }
            Tracked::Unarmed if quiet => IDLE,
            Tracked::Stores | Tracked::Accesses | Tracked::Unarmed => 0,
        };
        let skippable = if quiet { tracked.skippable() } else { 0 };
        self.meta
            .quiet
            .store(bits_tell | skippable, Ordering::Release);
    }

    /// Whether the locked table is a last-level table whose [`Meta::quiet`] contains the bit `flag`.
    #[inline(always)]
    fn has_flag(&self, flag: u32) -> bool {
        self.level == 1 && self.meta.quiet.load(Ordering::Relaxed) & flag != 0
    }

    /// Whether the locked last-level table is dirty-tracked: its dirty bits alone determine which pages were written.
    pub fn is_watched(&self) -> bool {
        self.has_flag(WATCHED)
    }

    /// Iterates over the entries of the locked last-level table, from `from` up to but not including `limit`, that may
    /// have been touched since they were protected. If `alike` is true, the iterator returns consecutive pages that
    /// differ only in their frames as one run. The cursor must stay in the table while the iterator is in use.
    ///
    /// # Panics
    /// If the cursor is not in a last-level table that contains `from` and the pages up to `limit`.
    #[inline]
    pub fn touched(
        &self,
        from: Page,
        limit: Page,
        alike: bool,
        tracked: Tracked,
    ) -> Touched<'t, M> {
        assert!(self.level == 1, "the cursor stands in no lowest table");
        let first = slot_index(from, 1);
        Touched {
            rest: &self.words[first..first + (limit.number() - from.number()) as usize],
            limit,
            tracked,
            alike,
            bits_tell: match tracked {
                Tracked::Stores => self.has_flag(WATCHED),
                Tracked::Accesses | Tracked::Unarmed => self.has_flag(IDLE),
            },
            machine: PhantomData,
        }
    }

    /// Evaluates `rule` for the attributes of `run`, for use by [`edit_prepared`](Self::edit_prepared).
    pub fn prepare(
        &self,
        run: &AlikeRun,
        mut rule: impl FnMut(Bits) -> Edit,
        gather: &Gather<'_, M>,
    ) -> Prepared {
        let mut editor = Editor {
            rule: |bits, _| rule(bits),
            regain: false,
            edited: Edited::default(),
        };
        let size = PageSize::Size4K;
        Prepared(Alike::decide(run.word, size, &mut editor, gather))
    }

    /// Applies a prepared edit to the first `pages` pages of `run`, in the locked last-level table. Returns the number
    /// of edited pages, which is smaller than `pages` if hardware changed the next entry in the meantime.
    ///
    /// # Panics
    /// If the pages are not all in the table.
    #[inline]
    pub fn edit_prepared(
        &self,
        run: &AlikeRun,
        pages: u64,
        prepared: &Prepared,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        let at = slot_index(run.range.start, 1);
        let slots = &self.words[at..at + pages as usize];
        let done = match slots {
            [slot] => u64::from(prepared.0.apply_one::<M>(slot)),
            slots => prepared.0.apply::<M>(slots) as u64,
        };
        if done > 0 {
            prepared.0.record(run.range.start, done, gather);
        }
        done
    }

    /// Applies a prepared edit to pages of the locked last-level table: the pages from `from` up to but not including
    /// `limit` that may have been written since they were protected. The edit must change bits. Writes the edited pages
    /// to `runs`. Stops before a page to which the edit does not apply, when `most` pages are edited, and when `runs`
    /// is full.
    ///
    /// # Panics
    /// If the cursor is not in a last-level table that contains `from` and the pages up to `limit`.
    pub fn edit_written(
        &self,
        from: Page,
        limit: Page,
        most: u64,
        prepared: &Prepared,
        runs: &mut [PageRange],
        gather: &mut Gather<'_, M>,
    ) -> EditedRuns {
        let alike = &prepared.0;
        let mut entries = self.touched(from, limit, false, Tracked::Stores);
        let (mut pages, mut used) = (0, 0);
        while pages < most {
            let Some(first) = entries.first() else {
                break;
            };
            let page = entries.page();
            match runs[..used].last_mut() {
                Some(last) if last.end == page => {
                    let left = entries.rest.len().min((most - pages) as usize);
                    let more = alike.apply::<M>(&entries.rest[..left]);
                    if more == 0 {
                        break;
                    }
                    entries.consume(more);
                    last.end = entries.page();
                    pages += more as u64;
                }
                Some(_) | None => {
                    if used == runs.len() || !alike.apply_one::<M>(first) {
                        break;
                    }
                    entries.consume(1);
                    runs[used] = PageRange::single(page);
                    used += 1;
                    pages += 1;
                }
            }
        }
        alike.record_runs(&runs[..used], pages, gather);
        EditedRuns {
            pages,
            runs: used,
            end: entries.page(),
        }
    }

    /// Edits the pages and swap entries of the locked last-level table, from the position to `end`, that may have been
    /// touched, as `rule` decides. Returns whether every entry from the position to `end` is untouched afterwards.
    ///
    /// # Panics
    /// If the cursor is not in a last-level table that contains the pages up to `end`.
    pub fn edit_touched(
        &mut self,
        end: Page,
        tracked: Tracked,
        rule: impl Fn(Bits) -> Edit,
        gather: &mut Gather<'_, M>,
    ) -> bool {
        let mut editor = Editor {
            rule: |bits, _| rule(bits),
            regain: false,
            edited: Edited::default(),
        };
        // Keep the last two decisions, because entries with two sets of attributes often alternate.
        let mut decided: [Option<Alike>; 2] = [None; 2];
        let mut untouched = true;
        let mut entries = self.touched(self.position, end, false, tracked);
        while let Some(first) = entries.first() {
            let word = first.load(Ordering::Relaxed);
            let start = entries.page();
            if !word::is_present(word) {
                untouched &= edit_swapped_slot::<M>(first, tracked, &rule);
                entries.consume(1);
                continue;
            }
            let alike = Alike::decided(word, &mut decided, &mut editor, gather);
            if !alike.changes() {
                alike.record(start, 0, gather);
                untouched = false;
                entries.consume(1);
                continue;
            }
            if !alike.apply_one::<M>(first) {
                // Hardware has changed the entry: decide again.
                continue;
            }
            entries.consume(1);
            let follows = |slot: &SlotOf<M>| alike.fits(slot.load(Ordering::Relaxed));
            let more = match entries.rest {
                [next, ..] if follows(next) => alike.apply::<M>(entries.rest),
                [] | [_, ..] => 0,
            };
            entries.consume(more);
            alike.record(start, 1 + more as u64, gather);
        }
        untouched
    }

    /// Adds marks to the slot here, in the locked last-level table. The slot must be empty or hold a marker.
    ///
    /// # Panics
    /// If a page is mapped, swapped out or migrating here.
    pub fn mark_here(&mut self, marks: Marks) {
        let old = self.word();
        let present = match word::decode(old, self.level) {
            Entry::Empty => Marks::empty(),
            Entry::Marker(Marker { marks }) => marks,
            Entry::Swapped(_) | Entry::Migrating(_) | Entry::Present(_) => {
                panic!("marked a page at {:?}", self.position)
            }
        };
        let new = word::encode(Entry::marker(present | marks));
        self.slot_word().store(new, Ordering::Release);
        self.count(old, new);
    }
}

/// Edits the bits that the entry in `slot` carries, if it is a swap entry. Returns whether the entry is untouched
/// afterwards. The table is locked.
fn edit_swapped_slot<M: Machine>(
    slot: &SlotOf<M>,
    tracked: Tracked,
    rule: impl Fn(Bits) -> Edit,
) -> bool {
    // Hardware does not change an entry that is not present, and the table is locked.
    let old = slot.load(Ordering::Relaxed);
    if word::swapped(old).is_none() {
        return tracked.is_untouched(old);
    }
    let bits = word::carried(old);
    let edit = rule(bits);
    let new = word::with_carried(old, (bits - edit.clear) | edit.set);
    slot.store(new, Ordering::Release);
    tracked.is_untouched(new)
}

/// Whether the dirty bit of every entry reports stores.
fn every_watched<M: Machine>(slots: &[SlotOf<M>]) -> bool {
    let every = slots.iter().fold(u64::MAX, |every, slot| {
        step::<M::Threads>(Step::Entry);
        every & slot.load(Ordering::Relaxed)
    });
    every & word::mask(Bits::WATCHED) != 0
}

/// Returns the intersection and the union of the bits of `slots`.
#[inline(always)]
fn every_and_some<M: Machine>(slots: &[SlotOf<M>; TOGETHER]) -> (u64, u64) {
    (every_bit::<M>(slots), some_bits::<M>(slots))
}

/// Whether the entries in `slots` are all unwritten for the same reason: all are write-protected by userfaultfd, or all
/// are tracked by their dirty bits and clean. `false` means unknown.
#[inline(always)]
fn all_unwritten<M: Machine>(slots: &[SlotOf<M>; TOGETHER]) -> bool {
    let (every, some) = every_and_some::<M>(slots);
    every & word::mask(Bits::UFFD_WP) != 0
        || (every & word::mask(Bits::WATCHED) != 0 && some & word::mask(Bits::DIRTY) == 0)
}

/// Whether the entries in `slots` are all unaccessed, as proved by the same condition for each. `false` means unknown.
#[inline(always)]
fn all_unaccessed<M: Machine>(slots: &[SlotOf<M>; TOGETHER]) -> bool {
    let (every, some) = every_and_some::<M>(slots);
    every & word::mask(Bits::UFFD_WP) != 0 || are_idle(every, some)
}

/// Whether the accessed bit of each entry in `slots` reports the next access, or all of them are empty. `false` means
/// unknown.
#[inline(always)]
fn all_idle<M: Machine>(slots: &[SlotOf<M>; TOGETHER]) -> bool {
    let (every, some) = every_and_some::<M>(slots);
    are_idle(every, some)
}

#[inline(always)]
fn are_idle(every: u64, some: u64) -> bool {
    some == 0 || (every & word::mask(Bits::IDLE) != 0 && some & word::mask(Bits::ACCESSED) == 0)
}
