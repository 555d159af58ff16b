//! Quiet tables: those of which a scan for written pages knows, without looking, that it would find none.
//!
//! A lowest table is *quiet* when every entry of it was found unwritten and nobody can have written below it since.
//! Two can write: a processor, and software.
//!
//! - **A processor** that uses a page below sets the accessed bit of the entry that leads to the table, unless it has
//!   something cached that it learned through that entry before: a translation, or the entry itself in a
//!   paging-structure cache ("the processor does not cache" either "unless the accessed flag is 1", Intel SDM volume
//!   3A, sections on TLBs and on paging-structure caches, in substance). So the bit is cleared first, then every CPU
//!   forgets leaves and upper levels, and only then are the entries looked at: [`Table::settle`], a flush, the look.
//!   What is written before the flush is found by the look; what is written after it sets the bit.
//! - **Software** that writes an entry holds the table's lock. Whoever takes the lock ends the quiet: there is no path
//!   that could forget to. Only the look itself says, while it holds the lock, that the table is quiet.
//!
//! A table in which every entry tells of a store by its dirty bit is also *watched*, until software locks it: then the
//! dirty bits alone say which pages were written, whatever was read there.
//!
//! Two scans at a time: the second may find the bit already clear while the first has not flushed yet, and a processor
//! may still write without setting it. The first announces its flush before it clears the bit, under the table's lock;
//! the second, which looks under the same lock, then leaves the table as it is, not quiet. The next scan looks again.
//!
//! The bit has one reader, this. Whoever else wants it must leave a copy: clear it under the table's lock, which ends
//! the quiet, and flush the same (design rule 9).

use core::sync::atomic::{AtomicU64, Ordering};

use super::batch::{Alike, Editor};
use super::cursor::Cursor;
use super::runs::{TOGETHER, count_alike, pass_while};
use super::{ROOT_LEVEL, Table, slot_index, slot_pages, table_owner};
use crate::addr::{Page, PageRange, PageSize};
use crate::entry::x86_64::{self, Slot};
use crate::entry::{Bits, Entry, Marker, Marks};
use crate::frame::Meta;
use crate::gather::Gather;
use crate::machine::Machine;
use crate::sync::{Rank, Step, step};
use crate::table::{Edit, Edited};

/// The level of the entries that lead to lowest tables.
const ABOVE: u8 = 2;
/// Pages of a lowest table.
const TABLE_PAGES: u64 = slot_pages(ABOVE);
/// In [`Meta::quiet`]: every entry was found unwritten, and nobody can have written since without a trace above.
const QUIET: u32 = 1;
/// In [`Meta::quiet`]: every entry is of a page whose dirty bit tells whether it was written.
const WATCHED: u32 = 1 << 1;

/// Entries that follow one another in a lowest table, the first of which is not known to be unwritten.
#[derive(Clone, Copy, Debug)]
pub struct WrittenRun {
    /// The first page.
    pub start: Page,
    /// How many there are: more than one only of pages that differ in nothing but their frames.
    pub pages: u64,
    word: u64,
}

impl WrittenRun {
    /// What the first is.
    #[inline]
    pub fn entry(&self) -> Entry {
        x86_64::decode(self.word, 1)
    }

    /// Whether both are of pages that differ in nothing but their frames.
    #[inline]
    pub fn is_like(&self, other: &Self) -> bool {
        x86_64::is_present(self.word)
            && x86_64::attributes(self.word) == x86_64::attributes(other.word)
    }
}

/// An edit that is decided on, for pages like those of a [`WrittenRun`].
#[derive(Clone, Copy, Debug)]
pub struct Prepared(Alike);

impl Meta {
    /// Whoever locks a table may make a page of it written.
    #[inline(always)]
    pub(crate) fn disturb(&self) {
        self.quiet.store(0, Ordering::Relaxed);
    }
}

impl<M: Machine> Table<M> {
    /// The entries that lead to lowest tables, from that of `page` on, in one table. `None` if there are none.
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

    /// Passes over quiet tables, and over what is mapped or marked by larger entries and unwritten, from the start of
    /// `range` on: returns the first page of the range of which that cannot be said. Only what lies wholly in the range
    /// is passed over. The caller holds the address space's lock: no table is freed meanwhile.
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

    /// Clears the accessed bits of the entries that lead to tables wholly in `range`, of those that are set, and records
    /// the flush: make it before the entries are looked at. Returns the first page of the range that is to be looked at:
    /// all before it is as [`pass_quiet`](Self::pass_quiet) says. The caller holds the address space's lock.
    pub fn settle(&self, range: PageRange, gather: &mut Gather<'_, M>) -> Page {
        let first = self.pass_quiet(range);
        let end = range.end.number() & !(TABLE_PAGES - 1);
        let mut page = first.number().div_ceil(TABLE_PAGES) * TABLE_PAGES;
        while page < end {
            let Some(slots) = self.entries_above(Page::new(page)) else {
                // To the next entry of the level above.
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
            // If the entry leads elsewhere by now, that is not quiet either.
            let clear = word & !x86_64::ACCESSED;
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = slot.compare_exchange(word, clear, order.0, order.1);
        }
        meta.lock.unlock(Rank::Table);
    }
}

impl<M: Machine> Cursor<'_, M> {
    /// Whether it stands at the start of a lowest table that lies wholly in its range, of which it may say after the look
    /// that it is quiet (see the module): no other CPU can still write without setting the accessed bit above.
    pub fn may_become_quiet(&self, gather: &Gather<'_, M>) -> bool {
        let start = self.position();
        self.level == 1
            && start.number() % TABLE_PAGES == 0
            && start.add(TABLE_PAGES) <= self.range().end
            && !gather.others_pending()
    }

    /// Says, after a look at all of the locked lowest table, whether every entry is unwritten, or was made so, and
    /// [`may_become_quiet`](Self::may_become_quiet) said before that the table may become quiet.
    ///
    /// # Panics
    /// If the cursor stands in no lowest table.
    pub fn end_look(&mut self, quiet: bool) {
        assert!(self.level == 1, "only a lowest table is quiet");
        let watched = self.is_watched() || (quiet && every_watched(self.words));
        let told = if quiet { QUIET } else { 0 } | if watched { WATCHED } else { 0 };
        self.meta.quiet.store(told, Ordering::Release);
    }

    /// Whether the dirty bits of the locked lowest table alone say which pages were written.
    pub fn is_watched(&self) -> bool {
        self.level == 1 && self.meta.quiet.load(Ordering::Relaxed) & WATCHED != 0
    }

    /// The first entries from `from` on, before `limit`, in the locked lowest table, that are not known to be unwritten
    /// since they were write-protected. `alike`: pages that differ in nothing but their frames come together.
    ///
    /// # Panics
    /// If the cursor does not stand in a lowest table that has both.
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
        // At least the first, whatever hardware has set meanwhile.
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

    /// Decides on an edit of pages like those of `run`.
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

    /// Makes a prepared edit of the first `pages` pages of `run`, in the locked lowest table, and returns how many it
    /// made: fewer where hardware has changed the next one meanwhile.
    ///
    /// # Panics
    /// If they are not all in the table.
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

    /// Sets marks on what is here, in the locked lowest table, where nothing is mapped.
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

/// Whether the dirty bit of every entry tells of stores.
fn every_watched(slots: &[AtomicU64]) -> bool {
    let every = slots.iter().fold(u64::MAX, |every, slot| {
        step(Step::Entry);
        every & slot.load(Ordering::Relaxed)
    });
    every & x86_64::WATCHED != 0
}

/// Whether no dirty bit is set: in a watched table nothing was written then.
#[inline(always)]
fn all_clean(slots: &[AtomicU64; TOGETHER]) -> bool {
    let mut some = 0;
    for slot in slots {
        step(Step::Entry);
        some |= slot.load(Ordering::Relaxed);
    }
    some & x86_64::DIRTY == 0
}

/// Whether all of these are pages known to be unwritten, told alike. `false` says nothing.
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
