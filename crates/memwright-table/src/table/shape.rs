//! Replaces upper-level entries by lower-level ones: pushes markers down and splits huge pages.

use core::sync::atomic::Ordering;

use super::aside::HUGE_LEVEL;
use super::cursor::Cursor;
use super::level::{ENTRIES, slot_index, slot_pages, table_owner};
use super::numbers;
use super::record::record;
use super::runs::{all_empty, are_pages, pass_together};
use crate::addr::{Frame, Page, PageRange, PageSize};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::{Bits, Change, Entry, Marker, Marks, Migrating, Present};
use crate::frame::OutOfFrames;
use crate::gather::Gather;
use crate::machine::Machine;
use crate::root::Table;
use crate::sync::stat::{self, Line};
use crate::sync::{Step, step};

impl<M: Machine> Table<M> {
    /// Allocates an empty table at `level` for the pages from `start` on. The caller links it.
    pub(super) fn allocate_table(&self, start: Page, level: u8) -> Result<Frame, OutOfFrames> {
        let frame = self.frames().allocate_table()?;
        let owner = table_owner(self.root(), level);
        self.frames()
            .meta(frame)
            .become_table(owner, start.number());
        self.share().count_tables::<M::Threads>(1);
        Ok(frame)
    }

    /// Updates the count of huge pages and markers in upper-level tables when the entry `old` there becomes `new`.
    #[inline]
    pub(super) fn count_large(&self, old: u64, new: u64) {
        match (is_large(old), is_large(new)) {
            (false, true) => self.state.large.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.state.large.fetch_sub(1, Ordering::Relaxed),
            (false, false) | (true, true) => return,
        };
    }
}

#[inline]
fn is_large(word: u64) -> bool {
    word != 0 && word::slot(word, HUGE_LEVEL) == Slot::Entry
}

impl<M: Machine> Cursor<'_, M> {
    /// Updates the numbers of entries of the locked table, and the count of huge pages and markers, when the entry
    /// `old` becomes `new`.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn count(&self, old: u64, new: u64) {
        if self.level > 1 {
            self.count_upper(old, new);
        } else if !numbers::are_equal(old, new) {
            let change = numbers::of_entry(new).wrapping_sub(numbers::of_entry(old));
            self.add_to_numbers(change);
        }
    }

    /// Does the work of [`count`](Self::count) for an upper-level table.
    #[cold]
    #[inline(never)]
    fn count_upper(&self, old: u64, new: u64) {
        self.table.count_large(old, new);
        self.add_to_numbers(u32::from(new != 0).wrapping_sub(u32::from(old != 0)));
    }

    /// Adds `change`, which wraps, to the numbers of entries of the locked table.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn add_to_numbers(&self, change: u32) {
        let live = &self.meta.live;
        let numbers = live.load(Ordering::Relaxed).wrapping_add(change);
        live.store(numbers, Ordering::Relaxed);
    }

    /// Links a new table here, where nothing is mapped. If there is a marker here, each entry of the new table is that
    /// marker. Moves the cursor into the new table before another CPU can lock it.
    pub(super) fn push_down(&mut self) -> Result<(), OutOfFrames> {
        let slot = self.slot_word();
        let old = slot.load(Ordering::Relaxed);
        let repeated = match word::decode(old, self.level) {
            Entry::Empty => 0,
            Entry::Marker(_) => old,
            Entry::Swapped(_) | Entry::Migrating(_) | Entry::Present(_) => {
                panic!("a page is in the way at {:?}", self.position)
            }
        };
        let lower = self
            .table
            .allocate_table(self.slot_start(), self.level - 1)?;
        if repeated != 0 {
            self.populate(lower, |_| repeated);
        }
        self.lock_unlinked(lower);
        let new = word::table(lower);
        slot.store(new, Ordering::Release);
        self.count(old, new);
        stat::line::<M::Threads>(Line::Entries, slot);
        self.descend(lower);
        Ok(())
    }

    /// Acquires the lock of a table that is about to be linked here, in addition to the lock of the current table, so
    /// that no other CPU changes the entries before the cursor is in the new table.
    fn lock_unlinked(&self, lower: Frame) {
        let taken = self
            .table
            .frames()
            .meta(lower)
            .lock
            .try_lock::<M::Threads>(self.rank);
        debug_assert!(taken, "somebody has the lock of a table that is not linked");
    }

    /// Moves the cursor into the table `lower`, which is linked here and whose lock the cursor holds. Releases the lock
    /// of the current table.
    fn descend(&mut self, lower: Frame) {
        let tables = self.table.frames().all_tables();
        self.meta.lock.unlock::<M::Threads>(self.rank);
        self.node = lower;
        self.words = tables.words(lower);
        self.meta = tables.meta(lower);
        self.level -= 1;
    }

    /// Writes every entry of a table that is not linked yet.
    fn populate(&self, lower: Frame, mut word: impl FnMut(u64) -> u64) {
        let frames = self.table.frames();
        for (index, slot) in frames.table_words(lower).iter().enumerate() {
            slot.store(word(index as u64), Ordering::Relaxed);
        }
        // All entries are of one kind.
        let each = if self.level == HUGE_LEVEL {
            numbers::of_entry(frames.table_words(lower)[0].load(Ordering::Relaxed))
        } else {
            numbers::LIVE
        };
        let live = &frames.meta(lower).live;
        live.store(each * ENTRIES as u32, Ordering::Relaxed);
        if self.level > 2 {
            self.table
                .state
                .large
                .fetch_add(ENTRIES as u64, Ordering::Relaxed);
        }
    }

    /// Splits the huge page here into 512 smaller pages, one level down, with the same rights and state. Empties the
    /// entry, flushes, and then links the lower table (rule: flush-what-shrank). The cursor is then at the smaller page
    /// that contains its position.
    ///
    /// # Errors
    /// [`OutOfFrames`] if there is no frame for the table below a 1 GiB page; no entry has changed. A split of a 2 MiB
    /// page does not fail, because a table was deposited for it.
    ///
    /// # Panics
    /// If there is no huge page here, or it is a 1 GiB page whose entry holds a reference. Such pages are never split.
    pub fn split(&mut self, gather: &mut Gather<'_, M>) -> Result<(), OutOfFrames> {
        let level = self.level;
        let large = self.entry().entry;
        let counted = match large {
            Entry::Present(Present { size, .. }) | Entry::Migrating(Migrating { size, .. })
                if size != PageSize::Size4K =>
            {
                large.counted_frame()
            }
            Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_)
            | Entry::Present(_)
            | Entry::Migrating(_) => panic!("no huge page to split at {:?}", self.position),
        };
        let start = self.slot_start();
        let lower = if level == HUGE_LEVEL {
            let lower = self.take_aside();
            let owner = table_owner(self.table.root(), level - 1);
            let meta = self.table.frames().meta(lower);
            meta.become_table(owner, start.number());
            meta.disturb();
            lower
        } else {
            assert!(counted.is_none(), "a 1 GiB page is split");
            self.table.allocate_table(start, level - 1)?
        };

        let old = self.slot_word().swap(0, Ordering::AcqRel);
        self.count(old, 0);
        if matches!(large, Entry::Present(_)) {
            record(gather, start, self.size(), Change::Resized, old);
            gather.flush();
        }
        if let Some(folio) = counted {
            self.table.frames().part(folio);
        }
        // Hardware may have set the accessed and dirty bits since `large` was read.
        self.populate_parts(lower, word::decode(old, level));
        self.lock_unlinked(lower);
        let new = word::table(lower);
        self.slot_word().store(new, Ordering::Release);
        self.count(0, new);
        self.descend(lower);
        Ok(())
    }

    /// Writes the parts of a huge page into every entry of a table that is not linked yet.
    fn populate_parts(&self, lower: Frame, large: Entry) {
        let first = word::encode(part(large));
        // If the address is stored inverted, a higher address is a lower value.
        let bytes = (slot_pages(self.level - 1) << 12) as i64;
        let step = match large {
            Entry::Present(page) if page.bits.contains(Bits::READ) => bytes,
            Entry::Present(_)
            | Entry::Migrating(_)
            | Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_) => -bytes,
        };
        let mut word = first;
        self.populate(lower, |_| {
            let each = word;
            word = word.wrapping_add_signed(step);
            each
        });
    }

    /// Pushes down the markers, and splits the huge pages, that are only partly in the range, so that operations on the
    /// range work on whole slots. Call this before removing or editing a range that may begin or end inside a slot. The
    /// cursor returns to its position.
    ///
    /// # Errors
    /// [`OutOfFrames`] if there is no frame for a table. Some slots may have been split, which is not visible to user
    /// programs.
    pub fn split_edges(&mut self, gather: &mut Gather<'_, M>) -> Result<(), OutOfFrames> {
        if !self.table.has_large() {
            return Ok(());
        }
        let back = self.position;
        let last = Page::new(self.range.end.number() - 1);
        for edge in [self.range.start, last] {
            self.go(edge);
            while self.is_cut_by_edge() {
                match self.entry().entry {
                    Entry::Empty => break,
                    Entry::Marker(_) => self.push_down()?,
                    Entry::Swapped(_) | Entry::Migrating(_) | Entry::Present(_) => {
                        self.split(gather)?;
                    }
                }
            }
        }
        self.go(back);
        Ok(())
    }

    /// Whether the slot here extends beyond the range.
    pub(super) fn is_cut_by_edge(&self) -> bool {
        let start = self.slot_start();
        start < self.range.start || start.add(slot_pages(self.level)) > self.range.end
    }

    /// Sets marks on all unmapped pages of the range, from the position on, in entries at the highest possible levels.
    /// Leaves mapped pages unchanged. Returns the range from the first mapped page to the last, or an empty range if no
    /// page is mapped. Does not add write protection to a guard or poison marker, because every access to it faults
    /// already. The cursor is at the end of the range afterwards.
    ///
    /// # Errors
    /// [`OutOfFrames`] if there is no frame for a table below a slot that is only partly in the range. The pages before
    /// the cursor's position have been marked.
    pub fn mark(&mut self, marks: Marks) -> Result<PageRange, OutOfFrames> {
        let mut mapped = PageRange::new(self.range.end, self.range.end);
        while self.position < self.range.end {
            if self.mark_alike(marks, &mut mapped) {
                continue;
            }
            let old = self.word();
            let present = match word::decode(old, self.level) {
                Entry::Empty => Marks::empty(),
                Entry::Marker(Marker { marks }) => marks,
                Entry::Swapped(_) | Entry::Migrating(_) | Entry::Present(_) => {
                    let start = self.position;
                    self.advance();
                    extend(&mut mapped, PageRange::new(start, self.position));
                    continue;
                }
            };
            // A guard or poison marker gets no write protection, because every access to it faults already.
            let refused = present.intersects(Marks::GUARD.union(Marks::POISON));
            let wanted = present | marks;
            if wanted != present && !(refused && marks == Marks::UFFD_WP) {
                // The processor accepts no leaf entry in the root.
                if self.level == M::Arch::LEVELS || self.is_cut_by_edge() {
                    self.push_down()?;
                    continue;
                }
                let new = word::encode(Entry::marker(wanted));
                self.slot_word().store(new, Ordering::Release);
                self.count(old, new);
            }
            self.advance();
        }
        Ok(mapped)
    }

    /// Handles consecutive slots of the locked table from the position on: marks empty slots, and skips pages and slots
    /// that already have `marks`. Returns whether it handled any slot: `false` if the slot at the position has another
    /// entry, is in the root table, or is only partly in the range.
    fn mark_alike(&mut self, marks: Marks, mapped: &mut PageRange) -> bool {
        let start = self.slot_start();
        let pages = slot_pages(self.level);
        let whole = (self.range.end.number() - start.number()) / pages;
        if self.level == M::Arch::LEVELS || start != self.position || whole == 0 {
            return false;
        }
        let first = slot_index(start, self.level);
        let slots = &self.words[first..ENTRIES.min(first + whole as usize)];
        let marker = word::encode(Entry::marker(marks));
        let level = self.level;
        let page = |word| word::slot(word, level) == Slot::Entry && word::is_present(word);
        let page_at = |slot: usize| start.add(slot as u64 * pages);
        let (mut done, mut marked) = (0, 0);
        let mut pages_from = None;
        let mut pages_to = 0;
        while done < slots.len() {
            step::<M::Threads>(Step::Entry);
            let word = slots[done].load(Ordering::Relaxed);
            if word == 0 {
                slots[done].store(marker, Ordering::Release);
                // The table is locked, so no other CPU writes an entry that is not present.
                let next = pass_together(slots, done + 1, |many| {
                    let empty = all_empty::<M>(many);
                    if empty {
                        many.iter()
                            .for_each(|slot| slot.store(marker, Ordering::Release));
                    }
                    empty
                });
                marked += (next - done) as u32;
                done = next;
            } else if word == marker {
                done += 1;
            } else if page(word) {
                pages_from.get_or_insert(done);
                done = pass_together(slots, done + 1, |many| are_pages::<M>(many, level));
                pages_to = done;
            } else {
                break;
            }
        }
        if let Some(first) = pages_from {
            extend(mapped, PageRange::new(page_at(first), page_at(pages_to)));
        }
        let live = self.meta.live.load(Ordering::Relaxed);
        self.meta.live.store(live + marked, Ordering::Relaxed);
        if level > 1 {
            let large = &self.table.state.large;
            large.fetch_add(u64::from(marked), Ordering::Relaxed);
        }
        self.go(page_at(done));
        done > 0
    }

    /// Clears marks on all pages of the range, from the position on. Clears write protection in a guard or poison
    /// marker only together with the guard or poison mark. Call `split_edges` first. The cursor is at the end of the
    /// range afterwards. No flush is needed, because CPUs do not cache markers.
    ///
    /// # Panics
    /// In debug builds, if a marker extends beyond the range.
    pub fn unmark(&mut self, marks: Marks) {
        while let Some(extent) = self.next_filled() {
            if self.level == 1 {
                self.unmark_table(marks);
                continue;
            }
            if let Entry::Marker(Marker { marks: present }) = extent.entry {
                self.debug_check_whole();
                let old = self.word();
                let new = word::encode(Entry::marker(left(present, marks)));
                self.slot_word().store(new, Ordering::Release);
                self.count(old, new);
            }
            self.advance();
        }
    }

    /// Clears marks from the position on in the locked last-level table.
    fn unmark_table(&mut self, marks: Marks) {
        let end = self.table_end(self.range.end);
        let live = self.meta.live.load(Ordering::Relaxed);
        let slots = self.slots_to(end);
        let (mut done, mut gone) = (0, 0);
        while done < slots.len() {
            step::<M::Threads>(Step::Entry);
            let (slot, word) = (&slots[done], slots[done].load(Ordering::Relaxed));
            done += 1;
            if word == 0 {
                done = pass_together(slots, done, all_empty::<M>);
            } else if word::is_present(word) {
                continue;
            } else if let Entry::Marker(Marker { marks: present }) = word::decode(word, 1) {
                let new = word::encode(Entry::marker(left(present, marks)));
                slot.store(new, Ordering::Release);
                gone += u32::from(new == 0);
            }
        }
        self.meta.live.store(live - gone, Ordering::Relaxed);
        self.go(end);
    }
}

/// Returns the marks that remain when `marks` are cleared from `present`. Write protection is neither added to nor
/// removed from a guard or poison marker. Clearing the guard or poison mark clears all other marks too (Linux 7.2
/// `mm/mprotect.c`, `change_pte_range`, and `mm/madvise.c`, `guard_remove_pte_entry`).
fn left(present: Marks, marks: Marks) -> Marks {
    let refusing = present.intersection(Marks::GUARD.union(Marks::POISON));
    if refusing.is_empty() {
        present.difference(marks)
    } else if marks.contains(refusing) {
        Marks::empty()
    } else {
        present
    }
}

/// Extends `known` to the end of `part`, which follows `known`.
fn extend(known: &mut PageRange, part: PageRange) {
    if known.is_empty() {
        known.start = part.start;
    }
    known.end = part.end;
}

/// Returns the entry of the first part of a huge page, one level down.
fn part(large: Entry) -> Entry {
    let smaller = |size| match size {
        PageSize::Size1G => PageSize::Size2M,
        PageSize::Size2M | PageSize::Size4K => PageSize::Size4K,
    };
    match large {
        Entry::Present(page) => Entry::Present(Present {
            size: smaller(page.size),
            ..page
        }),
        Entry::Migrating(page) => Entry::Migrating(Migrating {
            size: smaller(page.size),
            ..page
        }),
        Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) => large,
    }
}
