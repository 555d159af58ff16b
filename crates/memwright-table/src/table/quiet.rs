//! Skippable tables: last-level tables in which a scan for written or for accessed pages knows, without reading them,
//! that it would find none.
//!
//! A last-level table is *skippable* when every entry of it was found untouched ([`Tracked`]: unwritten, `QUIET`, or
//! unaccessed, `STILL`) and nothing can have touched a page below it since. Processors and software can.
//!
//! - **A processor** that uses a page below sets the accessed bit of the entry that points to the table, unless it has
//!   cached something that it read through that entry before: a translation, or the entry itself in a paging-structure
//!   cache ("the processor does not cache" either "unless the accessed flag is 1", Intel SDM volume 3A, sections on
//!   TLBs and on paging-structure caches, in substance). So a scan that protects first clears the bit
//!   ([`Table::settle`]), then flushes leaves and upper levels on every CPU, and only then checks the entries. The check
//!   finds each page that is written before the flush; a write after the flush sets the bit.
//! - **Software** that writes an entry holds the table's lock. Acquiring the lock always makes the table no longer
//!   skippable, so that no path can forget to. Only the check itself makes it skippable, while it holds the lock.
//!
//! Arming pages against accesses forgets the accesses before it, so it needs no check after the flush: it clears the
//! bit, arms the entries, and flushes before it returns. An access through what a CPU had cached comes before the
//! flush, and therefore before the call returns. It may still set the accessed bit of its page, which a later scan then
//! reports if another page of the table was accessed.
//!
//! A table in which the dirty bit of every entry reports stores is also *dirty-tracked* (`WATCHED`), until software
//! locks it: then the dirty bits alone show which pages were written, even if pages were read, which sets the accessed
//! bit above. So do the accessed bits of a table in which every page was armed by its accessed bit (`IDLE`).
//!
//! Two scans may run at a time. The second may find the bit already clear while the first has not flushed yet, and a
//! processor may still write without setting it. The first scan announces its flush before it clears the bit, under the
//! table's lock. The second, which checks under the same lock, then does not make the table skippable. The next scan
//! checks it again.
//!
//! These scans are the only code that reads the bit. Other code that clears the bit must preserve its information: it must
//! clear the bit under the table's lock, which also clears `QUIET`, and flush in the same way (rule:
//! fold-before-clearing).

use core::sync::atomic::{AtomicU64, Ordering};

use super::batch::{Alike, Editor};
use super::cursor::Cursor;
use super::level::{ROOT_LEVEL, slot_index, slot_pages, table_owner};
use super::runs::{TOGETHER, pass_alike, pass_while};
use crate::addr::{Page, PageRange, PageSize};
use crate::entry::x86_64::{self, Slot};
use crate::entry::{Bits, Entry, Marker, Marks};
use crate::frame::Meta;
use crate::gather::Gather;
use crate::machine::Machine;
use crate::root::Table;
use crate::sync::{Rank, Step, step};
use crate::table::{Edit, Edited};

/// The level of the entries that point to last-level tables.
const ABOVE: u8 = 2;
/// Pages of a last-level table.
const TABLE_PAGES: u64 = slot_pages(ABOVE);
/// In [`Meta::quiet`]: every entry was found unwritten, and nothing can have written since without setting the accessed
/// bit above.
const QUIET: u32 = 1;
/// In [`Meta::quiet`]: every entry was found unaccessed, and nothing can have accessed a page since without setting the
/// accessed bit above.
const STILL: u32 = 1 << 2;
/// In [`Meta::quiet`]: every entry maps a page whose dirty bit shows whether it was written.
const WATCHED: u32 = 1 << 1;
/// In [`Meta::quiet`]: the accessed bit of every entry shows whether the page was accessed since it was armed.
const IDLE: u32 = 1 << 3;

/// What a scan looks for in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// Pages that were written since they were write-protected.
    Stores,
    /// Pages that were accessed since they were armed against accesses.
    Accesses,
    /// Pages whose next access is not reported by the accessed bits of their entries: they were accessed, or an access
    /// faults.
    Unarmed,
}

impl Tracked {
    /// The bit in [`Meta::quiet`] of a table in which no page was touched.
    #[inline(always)]
    const fn skippable(self) -> u32 {
        match self {
            Self::Stores => QUIET,
            Self::Accesses | Self::Unarmed => STILL,
        }
    }

    /// Whether the entry is known to be untouched.
    #[inline(always)]
    const fn is_untouched(self, word: u64) -> bool {
        match self {
            Self::Stores => x86_64::is_unwritten(word),
            Self::Accesses => x86_64::is_unaccessed(word),
            Self::Unarmed => x86_64::is_idle(word),
        }
    }
}

/// Consecutive slots whose entries differ in nothing but their frames.
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

    /// The first entry.
    #[inline]
    pub fn entry(&self) -> Entry {
        x86_64::decode(self.word, self.level)
    }

    /// The largest page that fits a slot.
    #[inline]
    pub fn size(&self) -> PageSize {
        x86_64::level_size(self.level)
    }

    /// Whether the entries of both runs differ in nothing but their frames or swap slots.
    #[inline]
    pub fn is_like(&self, other: &Self) -> bool {
        self.level == other.level && x86_64::attributes(self.word) == x86_64::attributes(other.word)
    }
}

/// An iterator over the touched entries of a last-level table; see [`Cursor::touched`].
#[derive(Debug)]
pub struct Touched<'t> {
    /// The slots that were not looked at yet. Those before them are untouched, or were returned.
    rest: &'t [AtomicU64],
    /// The page after the last slot.
    limit: Page,
    tracked: Tracked,
    alike: bool,
    /// Whether the bits that the processor sets show alone whether a page was touched.
    bits_tell: bool,
}

impl<'t> Touched<'t> {
    /// The page of the first slot that was not looked at yet.
    #[inline(always)]
    fn page(&self) -> Page {
        Page::new(self.limit.number() - self.rest.len() as u64)
    }

    /// Skips the slots that are known to be untouched, and returns the next one.
    #[inline(always)]
    fn first(&mut self) -> Option<&'t AtomicU64> {
        let slots = self.rest;
        self.rest = match self.tracked {
            Tracked::Stores if self.bits_tell => {
                pass_while(slots, all_clean, |word| word & x86_64::DIRTY == 0)
            }
            Tracked::Stores => pass_while(slots, all_unwritten, x86_64::is_unwritten),
            Tracked::Accesses | Tracked::Unarmed if self.bits_tell => {
                pass_while(slots, all_old, |word| word & x86_64::ACCESSED == 0)
            }
            Tracked::Accesses => pass_while(slots, all_unaccessed, x86_64::is_unaccessed),
            Tracked::Unarmed => pass_while(slots, all_idle, x86_64::is_idle),
        };
        self.rest.first()
    }

    /// Moves past `slots` slots.
    #[inline(always)]
    fn consume(&mut self, slots: usize) {
        self.rest = self.rest.get(slots..).unwrap_or_default();
    }
}

impl Iterator for Touched<'_> {
    type Item = AlikeRun;

    #[inline(always)]
    fn next(&mut self) -> Option<AlikeRun> {
        let word = self.first()?.load(Ordering::Relaxed);
        let start = self.page();
        // The run has at least one page, even if hardware has changed the first entry meanwhile.
        self.consume(1);
        if self.alike && x86_64::is_present(word) {
            self.rest = pass_alike(self.rest, x86_64::attributes(word));
        }
        let range = PageRange::new(start, self.page());
        Some(AlikeRun::new(range, word, 1))
    }
}

/// A prepared edit, for pages like those of an [`AlikeRun`].
#[derive(Clone, Copy, Debug)]
pub struct Prepared(Alike);

impl Meta {
    /// Makes a table no longer skippable, because software that locks it may write a page of it.
    #[inline(always)]
    pub(crate) fn disturb(&self) {
        self.quiet.store(0, Ordering::Relaxed);
    }
}

impl<M: Machine> Table<M> {
    /// Returns the entries that point to last-level tables, from the entry for `page` to the end of its table, or
    /// `None` if there is no such table.
    fn entries_above(&self, page: Page) -> Option<&[AtomicU64]> {
        let frames = self.frames();
        let (mut node, mut level) = (self.root(), ROOT_LEVEL);
        while level > ABOVE {
            step(Step::Entry);
            let word = frames.table_words(node)[slot_index(page, level)].load(Ordering::Acquire);
            let Slot::Table(lower) = x86_64::slot(word, level) else {
                return None;
            };
            (node, level) = (lower, level - 1);
        }
        Some(&frames.table_words(node)[slot_index(page, ABOVE)..])
    }

    /// Skips skippable tables, and larger entries whose page or marker is untouched, from the start of `range` on.
    /// Returns the first page of the range that may have been touched. Only what is entirely in the range is skipped.
    ///
    /// # Locks
    /// The caller holds the address space's lock, so that no table is freed meanwhile.
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
                step(Step::Entry);
                let word = slot.load(Ordering::Acquire);
                match x86_64::slot(word, ABOVE) {
                    Slot::Table(lower) => {
                        word & x86_64::ACCESSED == 0
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

    /// Clears those accessed bits that are set in entries that point to tables entirely in `range`, and records the
    /// flush, which must be made before the entries are checked. Returns the first page of the range that must be
    /// checked: what is before it can be skipped, as by [`pass_quiet`](Self::pass_quiet).
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

    fn settle_one(&self, slot: &AtomicU64, start: Page, gather: &mut Gather<'_, M>) {
        step(Step::Entry);
        let word = slot.load(Ordering::Relaxed);
        let Slot::Table(lower) = x86_64::slot(word, ABOVE) else {
            return;
        };
        if word & x86_64::ACCESSED == 0 {
            return;
        }
        let meta = self.frames().meta(lower);
        meta.lock.lock(Rank::Table);
        let is_here = meta.is_table()
            && meta.owner.load(Ordering::Relaxed) == table_owner(self.root(), 1)
            && meta.index.load(Ordering::Relaxed) == start.number();
        if is_here {
            let told = meta.quiet.load(Ordering::Relaxed);
            meta.quiet.store(told & !(QUIET | STILL), Ordering::Relaxed);
            gather.record_upper_cleared();
            // If the entry points elsewhere by now, that table is not skippable either.
            let clear = word & !x86_64::ACCESSED;
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = slot.compare_exchange(word, clear, order.0, order.1);
        }
        meta.lock.unlock(Rank::Table);
    }
}

impl<'t, M: Machine> Cursor<'t, M> {
    /// Whether the cursor is at the start of a last-level table that is entirely in its range and may become skippable
    /// after the check (see the module documentation): no other CPU can still use a page without setting the accessed
    /// bit above.
    pub fn may_become_quiet(&self, gather: &Gather<'_, M>) -> bool {
        let start = self.position();
        self.level == 1
            && start.number() % TABLE_PAGES == 0
            && start.add(TABLE_PAGES) <= self.range().end
            && !gather.others_pending()
    }

    /// Records, after a check of the locked last-level table, whether it is skippable: whether every entry is untouched,
    /// or was made so, and [`may_become_quiet`](Self::may_become_quiet) returned true before.
    ///
    /// # Panics
    /// If the cursor is not in a last-level table.
    pub fn end_look(&mut self, tracked: Tracked, quiet: bool) {
        assert!(self.level == 1, "only a lowest table is quiet");
        let bits_tell = match tracked {
            Tracked::Stores if self.is_watched() || (quiet && every_watched(self.words)) => WATCHED,
            Tracked::Unarmed if quiet => IDLE,
            Tracked::Stores | Tracked::Accesses | Tracked::Unarmed => 0,
        };
        let skippable = if quiet { tracked.skippable() } else { 0 };
        self.meta
            .quiet
            .store(bits_tell | skippable, Ordering::Release);
    }

    /// Whether the locked table is a last-level table with this bit in [`Meta::quiet`].
    #[inline(always)]
    fn has_flag(&self, flag: u32) -> bool {
        self.level == 1 && self.meta.quiet.load(Ordering::Relaxed) & flag != 0
    }

    /// Whether the dirty bits of the locked last-level table alone show which pages were written.
    pub fn is_watched(&self) -> bool {
        self.has_flag(WATCHED)
    }

    /// Returns the entries from `from` on, before `limit`, in the locked last-level table, that are not known to be
    /// untouched since they were protected. With `alike`, pages that differ in nothing but their frames are returned
    /// together. The cursor must stay in the table as long as the iterator is in use.
    ///
    /// # Panics
    /// If the cursor is not in a last-level table that contains both.
    #[inline]
    pub fn touched(&self, from: Page, limit: Page, alike: bool, tracked: Tracked) -> Touched<'t> {
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
        }
    }

    /// Prepares an edit of pages like those of `run`.
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

    /// Makes a prepared edit of the first `pages` pages of `run`, in the locked last-level table, and returns how many
    /// pages were edited: fewer than `pages` if hardware changed the entry of the next one meanwhile.
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
            [slot] => u64::from(prepared.0.apply_one(slot)),
            slots => prepared.0.apply(slots) as u64,
        };
        if done > 0 {
            prepared.0.record(run.range.start, done, gather);
        }
        done
    }

    /// Edits the pages and the swap entries from the position to `end` that are not known to be untouched, in the locked
    /// last-level table, as `rule` decides. Returns whether every entry there is untouched now.
    ///
    /// # Panics
    /// If the cursor is not in a last-level table that contains both.
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
        // Entries with two sets of attributes often alternate, so the last two decisions are kept.
        let mut decided: [Option<Alike>; 2] = [None; 2];
        let mut untouched = true;
        let mut entries = self.touched(self.position, end, false, tracked);
        while let Some(first) = entries.first() {
            let word = first.load(Ordering::Relaxed);
            let start = entries.page();
            if !x86_64::is_present(word) {
                untouched &= edit_swapped_slot(first, tracked, &rule);
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
            if !alike.apply_one(first) {
                // Hardware has changed the entry meanwhile: decide again.
                continue;
            }
            entries.consume(1);
            let follows = |slot: &AtomicU64| alike.fits(slot.load(Ordering::Relaxed));
            let more = match entries.rest {
                [next, ..] if follows(next) => alike.apply(entries.rest),
                [] | [_, ..] => 0,
            };
            entries.consume(more);
            alike.record(start, 1 + more as u64, gather);
        }
        untouched
    }

    /// Sets marks on the unmapped page here, in the locked last-level table.
    ///
    /// # Panics
    /// If something is mapped here.
    pub fn mark_here(&mut self, marks: Marks) {
        let old = self.word();
        let present = match x86_64::decode(old, self.level) {
            Entry::Empty => Marks::empty(),
            Entry::Marker(Marker { marks }) => marks,
            Entry::Swapped(_) | Entry::Migrating(_) | Entry::Present(_) => {
                panic!("marked a page at {:?}", self.position)
            }
        };
        let new = x86_64::encode(Entry::marker(present | marks));
        self.slot_word().store(new, Ordering::Release);
        self.count(old, new);
    }
}

/// Edits the bits that a swap entry in the locked last-level table carries. Returns whether it is untouched now.
fn edit_swapped_slot(slot: &AtomicU64, tracked: Tracked, rule: impl Fn(Bits) -> Edit) -> bool {
    // No CPU changes an entry that maps nothing, and the table is locked.
    let old = slot.load(Ordering::Relaxed);
    if x86_64::swapped(old).is_none() {
        return tracked.is_untouched(old);
    }
    let bits = x86_64::carried(old);
    let edit = rule(bits);
    let new = x86_64::with_carried(old, (bits - edit.clear) | edit.set);
    slot.store(new, Ordering::Release);
    tracked.is_untouched(new)
}

/// Whether the dirty bit of every entry reports stores.
fn every_watched(slots: &[AtomicU64]) -> bool {
    let every = slots.iter().fold(u64::MAX, |every, slot| {
        step(Step::Entry);
        every & slot.load(Ordering::Relaxed)
    });
    every & x86_64::WATCHED != 0
}

/// Whether no dirty bit is set: then no page of a dirty-tracked table was written.
#[inline(always)]
fn all_clean(slots: &[AtomicU64; TOGETHER]) -> bool {
    let mut some = 0;
    for slot in slots {
        step(Step::Entry);
        some |= slot.load(Ordering::Relaxed);
    }
    some & x86_64::DIRTY == 0
}

/// Whether no accessed bit is set: then no page was accessed, of a table in which these bits tell.
#[inline(always)]
fn all_old(slots: &[AtomicU64; TOGETHER]) -> bool {
    let mut some = 0;
    for slot in slots {
        step(Step::Entry);
        some |= slot.load(Ordering::Relaxed);
    }
    some & x86_64::ACCESSED == 0
}

/// Returns the bits that all of these entries have, and those that some have.
#[inline(always)]
fn every_and_some(slots: &[AtomicU64; TOGETHER]) -> (u64, u64) {
    slots.iter().fold((u64::MAX, 0), |(every, some), slot| {
        step(Step::Entry);
        let word = slot.load(Ordering::Relaxed);
        (every & word, some | word)
    })
}

/// Whether all of these entries are known to be unwritten, all by the same bit. `false` means unknown.
#[inline(always)]
fn all_unwritten(slots: &[AtomicU64; TOGETHER]) -> bool {
    let (every, some) = every_and_some(slots);
    every & x86_64::UFFD_WP != 0 || (every & x86_64::WATCHED != 0 && some & x86_64::DIRTY == 0)
}

/// Whether all of these entries are known to be unaccessed, all for the same reason. `false` means unknown.
#[inline(always)]
fn all_unaccessed(slots: &[AtomicU64; TOGETHER]) -> bool {
    let (every, some) = every_and_some(slots);
    every & x86_64::UFFD_WP != 0 || are_idle(every, some)
}

/// Whether the accessed bit of each of these entries reports the next access, or nothing is mapped. `false` means
/// unknown.
#[inline(always)]
fn all_idle(slots: &[AtomicU64; TOGETHER]) -> bool {
    let (every, some) = every_and_some(slots);
    are_idle(every, some)
}

#[inline(always)]
const fn are_idle(every: u64, some: u64) -> bool {
    some == 0 || (every & x86_64::IDLE != 0 && some & x86_64::ACCESSED == 0)
}
