//! Replacing a shared table by one that a single address space uses.

use core::sync::atomic::Ordering;

use super::copy_entries::{Alike, CopyRule, copy_swapped};
use super::level::{ABOVE, TABLE_PAGES, slot_index, table_owner};
use super::shared::{ALONE, count_empty, count_sharers, is_shared, stop_sharing};
use crate::addr::{Frame, Page, PageRange};
use crate::arch::{Slot, TableSlot, word};
use crate::entry::{Bits, Entry};
use crate::frame::{Frames, Meta, add_references};
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::{Rank, Step, step};

impl<M: Machine> Table<M> {
    /// Gives this address space its own table for each shared table of `range`.
    ///
    /// # Locks
    /// The caller holds the lock of the address space, and no lock of a table.
    pub fn own_tables(&self, range: PageRange) {
        self.own_tables_that(range, |_, _| true);
    }

    /// Like [`own_tables`](Self::own_tables), but leaves a table shared if the pages that it maps have no other
    /// references. The number of entries that map a page of such a table is the number of address spaces that share the
    /// table.
    pub fn own_ambiguous_tables(&self, range: PageRange) {
        let may_be_ambiguous = |meta: &Meta| {
            count_sharers(meta) > 1 && meta.quiet.load(Ordering::Relaxed) & ALONE == 0
        };
        self.own_tables_that(range, |upper, slot| {
            let Slot::Table(lower) = word::slot(slot.load(Ordering::Acquire), ABOVE) else {
                return false;
            };
            if !may_be_ambiguous(self.frames().meta(lower)) {
                return false;
            }
            // While the upper table is locked, this address space cannot leave the shared table.
            upper.lock.lock::<M::Threads>(Rank::Table);
            let is_ambiguous = match word::slot(slot.load(Ordering::Acquire), ABOVE) {
                Slot::Table(lower) => {
                    let meta = self.frames().meta(lower);
                    meta.lock.lock::<M::Threads>(Rank::TableChild);
                    let is_ambiguous = may_be_ambiguous(meta) && self.has_other_references(lower);
                    if !is_ambiguous {
                        meta.quiet.fetch_or(ALONE, Ordering::Relaxed);
                    }
                    meta.lock.unlock::<M::Threads>(Rank::TableChild);
                    is_ambiguous
                }
                Slot::Entry => false,
            };
            upper.lock.unlock::<M::Threads>(Rank::Table);
            is_ambiguous
        });
    }

    /// Gives this address space its own table for each shared table of `range` for which `wanted` returns true. The
    /// arguments of `wanted` are the metadata of the upper table, and the slot in it that points to the shared table.
    fn own_tables_that(&self, range: PageRange, wanted: impl Fn(&Meta, &SlotOf<M>) -> bool) {
        if !self.has_shared() {
            return;
        }
        let frames = self.frames();
        let mut page = range.start;
        while page < range.end {
            let above = match self.upper_table(page) {
                Ok(above) => above,
                Err(next) => {
                    page = next;
                    continue;
                }
            };
            for slot in &frames.table_words(above)[slot_index(page, ABOVE)..] {
                if let Slot::Table(lower) = word::slot(slot.load(Ordering::Acquire), ABOVE) {
                    if is_shared(frames.meta(lower)) && wanted(frames.meta(above), slot) {
                        self.own_table(above, page, Rank::Table);
                    }
                }
                page = Page::new((page.number() / TABLE_PAGES + 1) * TABLE_PAGES);
                if page >= range.end {
                    return;
                }
            }
        }
    }

    /// Returns whether a page of the locked last-level table has references besides that of its entry. Returns true
    /// also if the table has a swap entry or a migrating entry.
    fn has_other_references(&self, table: Frame) -> bool {
        let frames = self.frames();
        let metas = frames.metas();
        let mut words = frames.table_words(table).iter();
        words.any(|slot| {
            let word = slot.load(Ordering::Relaxed);
            let borrowed = word::mask(Bits::BORROWED);
            if word::has_rights(word) && word & borrowed == 0 {
                let frame = word::frame(word, word::inverted(word::attributes(word)));
                let references = &metas.get(frame.number()).references;
                // In a parted folio, the count of a part also includes 1 for the folio, so a count that is not 1 does
                // not prove another reference.
                return references.load(Ordering::Relaxed) != 1 && frames.sharers(frame) > 1;
            }
            match word::decode(word, 1) {
                Entry::Empty | Entry::Marker(_) => false,
                Entry::Present(page) => frames.sharers(page.frame) > 1,
                Entry::Swapped(_) | Entry::Migrating(_) => true,
            }
        })
    }

    /// Gives this address space a last-level table of its own for `page`, if the present table is shared. `above` is
    /// the upper table with the entry that points to the present table. Other threads may share the new table again, so
    /// the caller must check again.
    ///
    /// If other address spaces share the table, this one gets a copy. Neither the copy nor the original is exclusive or
    /// writable then, and each page has one more reference. The upper entry has been flushed on return. If no other
    /// address space shares the table, this one takes it, and only gains rights.
    ///
    /// # Panics
    /// If `rank` is not [`Rank::Table`]. The other rank is that of the cursor on the child's table during a fork, which
    /// reaches no shared table.
    #[cold]
    #[inline(never)]
    pub(super) fn own_table(&self, above: Frame, page: Page, rank: Rank) {
        assert!(
            rank == Rank::Table,
            "a child shares a table before its fork has ended"
        );
        let frames = self.frames();
        let upper = frames.meta(above);
        let slot = &frames.table_words(above)[slot_index(page, ABOVE)];
        upper.lock.lock::<M::Threads>(Rank::Table);
        if let Slot::Table(lower) = word::slot(slot.load(Ordering::Acquire), ABOVE) {
            let meta = frames.meta(lower);
            meta.lock.lock::<M::Threads>(Rank::TableChild);
            if is_shared(meta) {
                self.state.shared.fetch_sub(1, Ordering::Relaxed);
                if stop_sharing(meta) {
                    self.copy_shared((lower, meta), slot, page);
                } else {
                    self.take(meta, slot);
                }
            }
            meta.lock.unlock::<M::Threads>(Rank::TableChild);
        }
        upper.lock.unlock::<M::Threads>(Rank::Table);
    }

    /// Takes a table that no other address space shares any more. The locks of both tables are held.
    fn take(&self, meta: &Meta, slot: &SlotOf<M>) {
        meta.disturb();
        meta.owner
            .store(table_owner(self.root(), 1), Ordering::Release);
        // A CPU that has cached the entry without the right to write takes a fault, and reads the entry again.
        word::permit_stores(slot);
        self.frames().unshared().note_taken();
    }

    /// Replaces the shared table `lower`, to which `slot` points, by a copy. The locks of both tables are held, and
    /// this address space no longer counts among those that share `lower`.
    fn copy_shared(&self, (lower, meta): (Frame, &Meta), slot: &SlotOf<M>, page: Page) {
        let frames = self.frames();
        let own = frames.allocate_earmarked();
        copy_entries(frames, lower, own);
        let start = Page::new(page.number() & !(TABLE_PAGES - 1));
        let owner = table_owner(self.root(), 1);
        let copy = frames.meta(own);
        copy.become_table(owner, start.number());
        copy.disturb();
        // Each page now also has a reference from the copy, so the flag `ALONE` no longer holds.
        meta.disturb();
        let numbers = meta.live.load(Ordering::Relaxed);
        copy.live.store(numbers, Ordering::Relaxed);
        slot.store(word::table(own), Ordering::Release);
        // A CPU may have cached the entry that pointed to the shared table. It must not walk that table after another
        // address space has taken the table, which is possible only with the lock that is held here (rule:
        // flush-before-leaving).
        let mut gather = self.gather();
        gather.record_left();
        let counts = gather.finish();
        let flushes = [counts.local, counts.remote, counts.interrupted];
        frames.unshared().note_copied(flushes);
    }
}

/// Copies every entry of the shared table `from` to `to`. Takes a reference for each copied entry that holds one.
fn copy_entries<M: Machine>(frames: &Frames<M>, from: Frame, to: Frame) {
    let rule = CopyRule::SHARED_TABLE;
    let (mut slots, mut targets) = (&frames.table_words(from)[..], &frames.table_words(to)[..]);
    loop {
        // Without the feature `inline`, the code of a fork copies all entries, so that the image is smaller.
        let copied = if cfg!(feature = "inline") {
            copy_counted(frames, slots, targets)
        } else {
            0
        };
        (slots, targets) = (&slots[copied..], &targets[copied..]);
        let Some(first) = slots.first() else {
            return;
        };
        let word = first.load(Ordering::Relaxed);
        let alike = Alike::decide(word, rule);
        let count = if word == 0 {
            let empty = count_empty::<M>(slots);
            for target in &targets[..empty] {
                target.store(0, Ordering::Relaxed);
            }
            empty
        } else if alike.present {
            let copied = alike.apply(frames, slots, targets);
            assert!(!copied.pinned, "a page of a shared table is pinned");
            copied.count
        } else if word::swapped(word).is_some() {
            copy_swapped(frames, slots, targets, rule)
        } else {
            targets[0].store(word, Ordering::Release);
            1
        };
        (slots, targets) = (&slots[count..], &targets[count..]);
    }
}

/// Copies the leading entries of `slots` that map pages with rights and hold references to single frames, which are not
/// part of a block of several frames. Neither the originals nor the copies are exclusive or writable afterwards. Takes
/// a reference for each copy. Returns the number of copies.
///
/// # Panics
/// If a page is pinned.
#[inline(never)]
fn copy_counted<M: Machine>(
    frames: &Frames<M>,
    slots: &[SlotOf<M>],
    targets: &[SlotOf<M>],
) -> usize {
    let metas = frames.metas();
    let CopyRule {
        clear, withhold, ..
    } = CopyRule::SHARED_TABLE;
    let length = slots.len().min(targets.len());
    let (slots, targets) = (&slots[..length], &targets[..length]);
    let (mut count, mut pins) = (0, 0);
    while count < length {
        step::<M::Threads>(Step::Entry);
        let word = slots[count].load(Ordering::Relaxed);
        let Some(meta) = metas.of_entry(word) else {
            break;
        };
        if meta.is_in_block() {
            break;
        }
        pins |= meta.pins.load(Ordering::Acquire);
        add_references(meta, 1);
        if word & word::mask(clear) != 0 {
            word::take(&slots[count], clear);
        }
        // Of the bits that a CPU may have set in the original meanwhile, the copy has none: the accessed bit is
        // withheld, and no CPU sets the dirty bit, because the entry above permits no stores.
        targets[count].store(word::without(word, withhold), Ordering::Release);
        count += 1;
    }
    assert!(pins == 0, "a page of a shared table is pinned");
    count
}
