//! Moves entries within one address space, for `mremap` (Linux 7.2 `mm/mremap.c`, `move_page_tables`).

use core::sync::atomic::Ordering;

use super::aside::{HUGE_LEVEL, is_page};
use super::cursor::Cursor;
use super::level::{ABOVE, ENTRIES, TABLE_PAGES};
use super::move_table::WholeTables;
use super::numbers;
use super::record::record;
use crate::addr::{Frame, Page, PageRange, PageSize};
use crate::arch::{TableSlot, word};
use crate::entry::{Bits, Entry, Marker, Marks, Present, Swapped, change};
use crate::frame::OutOfFrames;
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::{PausePoints, Step, step};

/// The rule by which the entries of an area are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveRule {
    /// Whether moved pages keep userfaultfd's write protection (rule: uffd-wp-survives).
    pub keep_uffd_wp: bool,
    /// Whether a last-level table moves as a whole if all of its pages move by a multiple of 512 pages. Pages that move
    /// with their table keep userfaultfd's write protection. They do not become soft-dirty, unlike pages that move one
    /// by one.
    pub whole_tables: bool,
}

impl MoveRule {
    /// Each entry moves by itself, and loses userfaultfd's write protection.
    pub const PLAIN: MoveRule = MoveRule {
        keep_uffd_wp: false,
        whole_tables: false,
    };
}

/// The maximum number of slots of a last-level table that a move empties at a time: a run.
const SLOTS: usize = 64;
/// The number of runs between two scheduling points.
const RUNS: u32 = 16;
/// The number of steps of the preparation between two scheduling points.
const PREPARED: u32 = 512;

impl<M: Machine> Table<M> {
    /// Moves the entries of `from`, with their references, to the pages from `to` on, where nothing is mapped. The
    /// ranges can share tables, but must not share pages. The calling thread can yield. Returns the number of moved
    /// entries.
    ///
    /// # Locks
    /// The caller holds the write lock of the address space and no other lock.
    ///
    /// # Errors
    /// [`OutOfFrames`] if there is no frame for a table; no entry has been moved.
    ///
    /// # Panics
    /// If a range is empty or extends beyond user memory, or an entry at the new address is not empty.
    pub fn move_entries(
        &self,
        from: PageRange,
        to: Page,
        rule: MoveRule,
        gather: &mut Gather<'_, M>,
    ) -> Result<u64, OutOfFrames> {
        let there = |page: Page| to.add(page.number() - from.start.number());
        let target = PageRange::new(to, there(from.end));
        let whole = WholeTables::of(from, to, rule.whole_tables);
        self.own_tables(from);
        if whole.any() && self.empty_level(target).is_none_or(|level| level < ABOVE) {
            // Every entry of the new range is empty. Free the empty tables there, so that whole tables can be linked in
            // their place.
            self.free_tables(target, gather);
        }
        self.prepare_move(from, target, whole, gather)?;

        let mut moved = 0;
        let mut points = PausePoints::<M::Threads>::every(RUNS);
        let mut next = from.start;
        while next < from.end {
            points.round();
            let mut source = self.cursor(PageRange::new(next, from.end));
            if source.next_filled().is_none() {
                break;
            }
            let at = source.position();
            if source.level > 1 {
                let (taken, aside) = source.take_to_move(gather);
                source.advance();
                next = source.position();
                drop(source);
                let mut place = self.cursor(PageRange::new(there(at), target.end));
                moved += place.put_moved(moved_entry(taken, rule.keep_uffd_wp), aside);
            } else if let Some(pages) = whole.around(at) {
                drop(source);
                let places = (pages.start, there(pages.start));
                let tables = whole.tables_from(pages.start);
                let (passed, entries) = self.move_tables(places, tables, gather);
                moved += entries;
                next = pages.start.add(passed * TABLE_PAGES);
            } else {
                let mut words = [0; SLOTS];
                let most = slots_left(there(at)).min(SLOTS);
                let count = source.take_run(&mut words[..most], gather);
                drop(source);
                let mut place = self.cursor(PageRange::new(there(at), target.end));
                moved += place.put_run(&words[..count], rule.keep_uffd_wp);
                next = at.add(count as u64);
            }
        }
        Ok(moved)
    }

    /// Allocates every table that a move needs, and splits the entries that cannot be moved as a whole.
    fn prepare_move(
        &self,
        from: PageRange,
        target: PageRange,
        whole: WholeTables,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), OutOfFrames> {
        let there = |page: Page| target.start.add(page.number() - from.start.number());
        let mut points = PausePoints::<M::Threads>::every(PREPARED);
        let mut source = self.cursor(from);
        source.split_edges(gather)?;
        loop {
            let Some(extent) = source.next_filled() else {
                return Ok(());
            };
            let size = extent.range.len();
            if size > 1 && there(extent.range.start).number() % size != 0 {
                source.divide(gather)?;
                continue;
            }
            // Hold one lock at a time, because the old and the new address can be in the same table.
            let at = source.position();
            let table = whole.around(at).filter(|_| source.level == 1);
            // If the last-level table moves as a whole, only the table one level up is needed at the new address.
            let level = source.level + u8::from(table.is_some());
            drop(source);
            let mut place = self.cursor(target);
            place.seek(there(at));
            while place.level > level {
                place.push_down()?;
            }
            let table_in_the_way = place.level < level;
            drop(place);
            if table_in_the_way {
                source = self.cursor(PageRange::new(at, from.end));
                source.divide(gather)?;
                continue;
            }
            // In an upper-level table, continue after this slot. In a last-level table, continue after the last page
            // for which both the old and the new last-level table have been handled. Tables that move as a whole need
            // only the upper-level table at the new address.
            let next = match table {
                Some(pages) => whole.upper_end(pages.start, there(pages.start)),
                None if level == 1 => at.add(slots_left(at).min(slots_left(there(at))) as u64),
                None => at.add(size),
            };
            if next >= from.end {
                return Ok(());
            }
            points.round();
            source = self.cursor(PageRange::new(next, from.end));
        }
    }
}

/// Empties the leading slots whose entries have the attributes `attributes`, and stores these entries in `words`.
/// Returns the number of slots.
#[inline]
fn take_alike<M: Machine>(slots: &[SlotOf<M>], words: &mut [u64], attributes: u64) -> usize {
    let most = slots.len().min(words.len());
    let (slots, words) = (&slots[..most], &mut words[..most]);
    let mut count = 0;
    while count < most {
        step::<M::Threads>(Step::Entry);
        let slot = &slots[count];
        let word = slot.load(Ordering::Relaxed);
        // The exchange fails if hardware sets the accessed or dirty bit at the same time.
        if word == 0 || word::attributes(word) != attributes || slot.exchange(word, 0).is_err() {
            break;
        }
        words[count] = word;
        count += 1;
    }
    count
}

/// Stores the leading `words` whose attributes are `attributes` in the leading slots that are empty, with the bits
/// `changed` inverted. Returns the number of stored words.
#[inline]
fn put_alike<M: Machine>(
    slots: &[SlotOf<M>],
    words: &[u64],
    attributes: u64,
    changed: u64,
) -> usize {
    let most = slots.len().min(words.len());
    let (slots, words) = (&slots[..most], &words[..most]);
    let mut count = 0;
    while count < most {
        step::<M::Threads>(Step::Entry);
        let (slot, word) = (&slots[count], words[count]);
        if word::attributes(word) != attributes || slot.load(Ordering::Relaxed) != 0 {
            break;
        }
        slot.store(word ^ changed, Ordering::Release);
        count += 1;
    }
    count
}

/// Returns the number of slots from `page` to the end of its last-level table.
fn slots_left(page: Page) -> usize {
    ENTRIES - page.number() as usize % ENTRIES
}

impl<M: Machine> Cursor<'_, M> {
    /// Removes the entry here, in an upper-level table, and returns it with its reference and with the page table
    /// deposited for it, if any.
    fn take_to_move(&mut self, gather: &mut Gather<'_, M>) -> (Entry, Option<Frame>) {
        self.debug_check_whole();
        let old = self.slot_word().swap(0, Ordering::AcqRel);
        self.count(old, 0);
        let entry = word::decode(old, self.level);
        let what = change(entry, Entry::Empty);
        record(gather, self.slot_start(), self.size(), what, old);
        let deposits = self.level == HUGE_LEVEL && is_page(entry);
        (entry, deposits.then(|| self.take_aside()))
    }

    /// Stores a moved entry here, in an upper-level table, with the page table deposited for it. The tables for the
    /// entry already exist. Returns 1, or 0 if the entry is empty.
    fn put_moved(&mut self, entry: Entry, aside: Option<Frame>) -> u64 {
        if entry == Entry::Empty {
            return 0;
        }
        let old = self.word();
        assert!(
            old == 0,
            "moved an entry to {:?}, which is not empty",
            self.position
        );
        if let Some(table) = aside {
            self.set_aside(table);
        }
        self.break_before_make(1);
        let new = word::encode(entry);
        self.slot_word().store(new, Ordering::Release);
        self.count(old, new);
        1
    }

    /// Empties up to `words.len()` slots of this last-level table, beginning here, and stores their entries in `words`,
    /// which contains only zeroes. The references move with the entries. Returns the number of slots.
    fn take_run(&self, words: &mut [u64], gather: &mut Gather<'_, M>) -> usize {
        let slots = self.slots_to(self.table_end(self.range.end));
        let count = slots.len().min(words.len());
        let (slots, words) = (&slots[..count], &mut words[..count]);
        let (mut done, mut taken) = (0, 0);
        while done < count {
            let word = slots[done].load(Ordering::Relaxed);
            if word == 0 {
                done += 1;
                continue;
            }
            let attributes = word::attributes(word);
            let alike = take_alike::<M>(&slots[done..], &mut words[done..], attributes);
            self.record_taken(done, &words[done..done + alike], gather);
            done += alike;
            taken += numbers::of_entry(word) * alike as u32;
        }
        let live = &self.meta.live;
        live.store(live.load(Ordering::Relaxed) - taken, Ordering::Relaxed);
        count
    }

    /// Records the removal of consecutive entries with the same attributes. The first one was `first` slots after the
    /// position.
    fn record_taken(&self, first: usize, words: &[u64], gather: &mut Gather<'_, M>) {
        let Some(&word) = words.first() else {
            return;
        };
        let page = self.position.add(first as u64);
        let what = change(word::decode(word, 1), Entry::Empty);
        let elided = what.needs_local() && word::is_uncached(word);
        gather.record_entries(page, PageSize::Size4K, what, elided, words.len() as u64);
    }

    /// Stores moved entries in this last-level table, beginning here. The slots must be empty. Returns the number of
    /// entries.
    fn put_run(&mut self, words: &[u64], keep_uffd_wp: bool) -> u64 {
        self.break_before_make(words.len());
        let slots = self.slots_to(self.position.add(words.len() as u64));
        let (mut done, mut moved, mut more) = (0, 0, 0);
        while let Some(&word) = words.get(done) {
            if word == 0 {
                done += 1;
                continue;
            }
            let new = word::encode(moved_entry(word::decode(word, 1), keep_uffd_wp));
            let alike = if word::is_present(word) {
                // The move inverts the same bits in the entries of all pages with these attributes.
                let changed = word ^ new;
                debug_assert_eq!(word::attributes(changed), changed);
                let attributes = word::attributes(word);
                put_alike::<M>(&slots[done..], &words[done..], attributes, changed)
            } else {
                put_alike::<M>(&slots[done..=done], &[new], word::attributes(new), 0)
            };
            assert!(
                alike > 0,
                "moved an entry to {:?}, which is not empty",
                self.position.add(done as u64)
            );
            done += alike;
            moved += if new == 0 { 0 } else { alike as u64 };
            more += numbers::of_entry(new) * alike as u32;
        }
        let live = &self.meta.live;
        live.store(live.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        moved
    }

    /// Replaces the entry here by 512 entries one level down: pushes a marker down, or splits a huge page.
    fn divide(&mut self, gather: &mut Gather<'_, M>) -> Result<(), OutOfFrames> {
        match self.entry().entry {
            Entry::Empty | Entry::Marker(_) => self.push_down(),
            Entry::Swapped(_) | Entry::Migrating(_) | Entry::Present(_) => self.split(gather),
        }
    }
}

/// Returns the entry that a move stores at the new address.
fn moved_entry(entry: Entry, keep_uffd_wp: bool) -> Entry {
    let lost = if keep_uffd_wp {
        Bits::empty()
    } else {
        Bits::UFFD_WP.union(Bits::WATCHED).union(Bits::IDLE)
    };
    let bits = |bits: Bits| bits.difference(lost) | Bits::SOFT_DIRTY;
    match entry {
        Entry::Empty => Entry::Empty,
        Entry::Marker(Marker { marks }) if keep_uffd_wp => Entry::marker(marks),
        Entry::Marker(Marker { marks }) => Entry::marker(marks.difference(Marks::UFFD_WP)),
        Entry::Swapped(page) => Entry::Swapped(Swapped {
            bits: bits(page.bits),
            ..page
        }),
        Entry::Migrating(page) => Entry::Migrating(crate::entry::Migrating {
            bits: bits(page.bits),
            ..page
        }),
        Entry::Present(page) => Entry::Present(Present {
            bits: bits(page.bits),
            ..page
        }),
    }
}
