//! Skippable tables: last-level tables in which a scan for written pages knows, without reading them, that it would
//! find none.
//!
//! A last-level table is *skippable* (`QUIET`) when every entry of it was found unwritten and nothing can have written
//! below it since. Two kinds of writers exist, processors and software.
//!
//! - **A processor** that uses a page below sets the accessed bit of the entry that points to the table, unless it has
//!   cached something that it read through that entry before: a translation, or the entry itself in a paging-structure
//!   cache ("the processor does not cache" either "unless the accessed flag is 1", Intel SDM volume 3A, sections on
//!   TLBs and on paging-structure caches, in substance). So a scan first clears the bit ([`Table::settle`]), then
//!   flushes leaves and upper levels on every CPU, and only then checks the entries. The check finds each page that is
//!   written before the flush; a write after the flush sets the bit.
//! - **Software** that writes an entry holds the table's lock. Acquiring the lock always clears `QUIET`, so that no
//!   path can forget to. Only the check itself sets it, while it holds the lock.
//!
//! A table in which the dirty bit of every entry reports stores is also *dirty-tracked* (`WATCHED`), until software
//! locks it: then the dirty bits alone show which pages were written, even if pages were read, which sets the accessed
//! bit above.
//!
//! Two scans may run at a time. The second may find the bit already clear while the first has not flushed yet, and a
//! processor may still write without setting it. The first scan announces its flush before it clears the bit, under the
//! table's lock. The second, which checks under the same lock, then does not make the table skippable. The next scan
//! checks it again.
//!
//! This scan is the only code that reads the bit. Other code that clears the bit must preserve its information: it must
//! clear the bit under the table's lock, which also clears `QUIET`, and flush in the same way (rule:
//! fold-before-clearing).

use core::sync::atomic::{AtomicU64, Ordering};

use super::batch::{Alike, Editor};
use super::cursor::Cursor;
use super::level::{ROOT_LEVEL, slot_index, slot_pages, table_owner};
use super::runs::{TOGETHER, count_alike, pass_while};
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
/// In [`Meta::quiet`]: every entry maps a page whose dirty bit shows whether it was written.
const WATCHED: u32 = 1 << 1;

/// Consecutive entries in a last-level table, the first of which is not known to be unwritten.
#[derive(Clone, Copy, Debug)]
pub struct WrittenRun {
    /// The first page.
    pub start: Page,
    /// The number of pages: more than one only if they differ in nothing but their frames.
    pub pages: u64,
    word: u64,
}

impl WrittenRun {
    /// The first entry.
    #[inline]
    pub fn entry(&self) -> Entry {
        x86_64::decode(self.word, 1)
    }

    /// Whether both runs are of pages that differ in nothing but their frames.
    #[inline]
    pub fn is_like(&self, other: &Self) -> bool {
        x86_64::is_present(self.word)
            && x86_64::attributes(self.word) == x86_64::attributes(other.word)
    }
}

/// A prepared edit, for pages like those of a [`WrittenRun`].
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

    /// Skips skippable tables, and larger entries whose page or marker is unwritten, from the start of `range` on.
    /// Returns the first page of the range that may have been written. Only what is entirely in the range is skipped.
    ///
    /// # Locks
    /// The caller holds the address space's lock, so that no table is freed meanwhile.
    pub fn pass_quiet(&self, range: PageRange) -> Page {
        let tables = self.frames().all_tables();
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
                            && tables.meta(lower).quiet.load(Ordering::Acquire) & QUIET != 0
                    }
                    Slot::Entry => x86_64::is_unwritten(word),
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
    pub fn settle(&self, range: PageRange, gather: &mut Gather<'_, M>) -> Page {
        let first = self.pass_quiet(range);
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
            meta.quiet.store(told & !QUIET, Ordering::Relaxed);
            gather.record_upper_cleared();
            // If the entry points elsewhere by now, that table is not skippable either.
            let clear = word & !x86_64::ACCESSED;
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = slot.compare_exchange(word, clear, order.0, order.1);
        }
        meta.lock.unlock(Rank::Table);
    }
}

impl<M: Machine> Cursor<'_, M> {
    /// Whether the cursor is at the start of a last-level table that is entirely in its range and may become skippable
    /// after the check (see the module documentation): no other CPU can still write without setting the accessed bit
    /// above.
    pub fn may_become_quiet(&self, gather: &Gather<'_, M>) -> bool {
        let start = self.position();
        self.level == 1
            && start.number() % TABLE_PAGES == 0
            && start.add(TABLE_PAGES) <= self.range().end
            && !gather.others_pending()
    }

    /// Records, after a check of all of the locked last-level table, whether it is skippable: whether every entry is
    /// unwritten, or was made so, and [`may_become_quiet`](Self::may_become_quiet) returned true before.
    ///
    /// # Panics
    /// If the cursor is not in a last-level table.
    pub fn end_look(&mut self, quiet: bool) {
        assert!(self.level == 1, "only a lowest table is quiet");
        let watched = self.is_watched() || (quiet && every_watched(self.words));
        let told = if quiet { QUIET } else { 0 } | if watched { WATCHED } else { 0 };
        self.meta.quiet.store(told, Ordering::Release);
    }

    /// Whether the dirty bits of the locked last-level table alone show which pages were written.
    pub fn is_watched(&self) -> bool {
        self.level == 1 && self.meta.quiet.load(Ordering::Relaxed) & WATCHED != 0
    }

    /// Returns the first entries from `from` on, before `limit`, in the locked last-level table, that are not known to
    /// be unwritten since they were write-protected. With `alike`, pages that differ in nothing but their frames are
    /// returned together.
    ///
    /// # Panics
    /// If the cursor is not in a last-level table that contains both.
    #[inline]
    pub fn next_written(&self, from: Page, limit: Page, alike: bool) -> Option<WrittenRun> {
        assert!(self.level == 1, "the cursor stands in no lowest table");
        let first = slot_index(from, 1);
        let slots = &self.words[first..first + (limit.number() - from.number()) as usize];
        let rest = if self.is_watched() {
            pass_while(slots, all_clean, |word| word & x86_64::DIRTY == 0)
        } else {
            pass_while(slots, all_unwritten, x86_64::is_unwritten)
        };
        if rest.is_empty() {
            return None;
        }
        let word = rest[0].load(Ordering::Relaxed);
        let attributes = x86_64::attributes(word);
        let mut pages = 1;
        // The run has at least one page, even if hardware has changed the first entry meanwhile.
        let follows =
            |slot: &AtomicU64| x86_64::attributes(slot.load(Ordering::Relaxed)) == attributes;
        if alike && x86_64::is_present(word) && rest.get(1).is_some_and(follows) {
            pages += count_alike(&rest[1..], attributes);
        }
        Some(WrittenRun {
            start: Page::new(limit.number() - rest.len() as u64),
            pages: pages as u64,
            word,
        })
    }

    /// Prepares an edit of pages like those of `run`.
    pub fn prepare(
        &self,
        run: &WrittenRun,
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
        run: &WrittenRun,
        pages: u64,
        prepared: &Prepared,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        let at = slot_index(run.start, 1);
        let slots = &self.words[at..at + pages as usize];
        let done = match slots {
            [slot] => u64::from(prepared.0.apply_one(slot)),
            slots => prepared.0.apply(slots) as u64,
        };
        if done > 0 {
            prepared.0.record(run.start, done, gather);
        }
        done
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

/// Whether all of these entries are known to be unwritten, all by the same bit. `false` means unknown.
#[inline(always)]
fn all_unwritten(slots: &[AtomicU64; TOGETHER]) -> bool {
    let (mut every, mut some) = (u64::MAX, 0);
    for slot in slots {
        step(Step::Entry);
        let word = slot.load(Ordering::Relaxed);
        every &= word;
        some |= word;
    }
    every & x86_64::UFFD_WP != 0 || (every & x86_64::WATCHED != 0 && some & x86_64::DIRTY == 0)
}
