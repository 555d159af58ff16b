//! Collapses 512 small pages into one 2 MiB page.

use core::sync::atomic::Ordering;

use super::aside::HUGE_LEVEL;
use super::level::slot_index;
use crate::addr::{Frame, PageRange, PageSize};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::{Bits, Entry, Present};
use crate::frame::{FOLIO_FRAMES, FrameRef, Meta};
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::Rank;

/// The result of a collapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed {
    /// The number of pages that were copied into the folio.
    pub copied: u64,
    /// The number of pages of the folio that were filled with zeroes, because the page was not mapped or was the zero
    /// page.
    pub zeroed: u64,
}

impl<M: Machine> Table<M> {
    /// Copies the pages of `range`, which are the 512 pages of one last-level table, into `folio`, and maps the folio
    /// in their place. `decide` derives the bits of the new entry from the union of the bits of the old entries.
    /// Returns `None`, with nothing changed, if there is no last-level table.
    ///
    /// First unlinks the last-level table and flushes it on every CPU, including cached upper-level entries (rules:
    /// flush-what-shrank, flush-freed-tables). A store by another CPU therefore either precedes the copy or faults.
    /// Finally deposits the table for the new huge page.
    ///
    /// # Locks
    /// The caller holds the write lock of the address space, and has checked that every entry is empty or a page.
    ///
    /// # Panics
    /// If `folio` is not a whole folio, or an entry is neither empty nor a page.
    pub fn collapse(
        &self,
        range: PageRange,
        folio: FrameRef<'_, M>,
        decide: impl FnOnce(Bits) -> Bits,
        gather: &mut Gather<'_, M>,
    ) -> Option<Collapsed> {
        assert!(folio.is_whole(), "a collapse needs a folio");
        self.own_tables(range);
        let frames = self.frames();
        let (node, lower) = self.lowest_table(range)?;
        let slot = &frames.table_words(node)[slot_index(range.start, HUGE_LEVEL)];
        let (above, below) = (frames.meta(node), frames.meta(lower));
        above.lock.lock::<M::Threads>(Rank::Table);
        below.lock.lock::<M::Threads>(Rank::TableChild);
        slot.store(0, Ordering::Release);
        below.owner.store(0, Ordering::Relaxed);
        gather.record_unlinked();
        gather.flush();

        let (collapsed, bits) = self.gather_pages(lower, folio.frame(), gather);
        let page = Present {
            frame: folio.into_raw(),
            size: PageSize::Size2M,
            bits: decide(bits),
        };
        self.replace_table((above, below), slot, lower, page);
        below.lock.unlock::<M::Threads>(Rank::TableChild);
        above.lock.unlock::<M::Threads>(Rank::Table);
        Some(collapsed)
    }

    /// Maps `folio`, which belongs to an object, in place of the last-level table of `range`, without copying. First
    /// unlinks the table and flushes it, like [`collapse`](Self::collapse). Returns `false`, with nothing changed, if
    /// there is no last-level table, or if an entry of it is neither empty nor a page of the folio.
    ///
    /// # Locks
    /// The caller holds the write lock of the address space.
    ///
    /// # Panics
    /// If `folio` is not a whole folio.
    pub fn retract(
        &self,
        range: PageRange,
        folio: FrameRef<'_, M>,
        bits: Bits,
        gather: &mut Gather<'_, M>,
    ) -> bool {
        assert!(folio.is_whole(), "a huge page needs a folio");
        self.own_tables(range);
        let frames = self.frames();
        let Some((node, lower)) = self.lowest_table(range) else {
            return false;
        };
        let slot = &frames.table_words(node)[slot_index(range.start, HUGE_LEVEL)];
        let (above, below) = (frames.meta(node), frames.meta(lower));
        above.lock.lock::<M::Threads>(Rank::Table);
        below.lock.lock::<M::Threads>(Rank::TableChild);
        let head = folio.frame();
        let fits = |word: &SlotOf<M>| match word::decode(word.load(Ordering::Acquire), 1) {
            Entry::Empty => true,
            Entry::Present(page) => frames.folio_of(page.frame) == Some(head),
            Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => false,
        };
        let fits = frames.table_words(lower).iter().all(fits);
        if fits {
            slot.store(0, Ordering::Release);
            below.owner.store(0, Ordering::Relaxed);
            gather.record_unlinked();
            gather.flush();
            for word in frames.table_words(lower) {
                if let Entry::Present(page) = word::decode(word.swap(0, Ordering::AcqRel), 1) {
                    gather.hold(page.frame);
                }
            }
            let page = Present {
                frame: folio.into_raw(),
                size: PageSize::Size2M,
                bits,
            };
            self.replace_table((above, below), slot, lower, page);
        }
        below.lock.unlock::<M::Threads>(Rank::TableChild);
        above.lock.unlock::<M::Threads>(Rank::Table);
        fits
    }

    /// Returns the level-2 table whose entry covers `range`, and the last-level table below that entry, or `None` if
    /// there is no last-level table.
    fn lowest_table(&self, range: PageRange) -> Option<(Frame, Frame)> {
        let frames = self.frames();
        let (mut node, mut level) = (self.root(), M::Arch::LEVELS);
        loop {
            let word = &frames.table_words(node)[slot_index(range.start, level)];
            match word::slot(word.load(Ordering::Acquire), level) {
                Slot::Table(lower) if level == HUGE_LEVEL => return Some((node, lower)),
                Slot::Table(lower) => (node, level) = (lower, level - 1),
                Slot::Entry => return None,
            }
        }
    }

    /// Maps the huge page `page` in `slot`, and deposits for it the table `lower` that was unlinked from the slot.
    /// `lower` is empty, and no CPU uses it any more.
    fn replace_table(
        &self,
        (above, below): (&Meta, &Meta),
        slot: &SlotOf<M>,
        lower: Frame,
        page: Present,
    ) {
        below.live.store(0, Ordering::Relaxed);
        let new = word::encode_present(page);
        let next = above.aside.swap(lower.number(), Ordering::Relaxed);
        below.set_link(next);
        slot.store(new, Ordering::Release);
        self.count_large(0, new);
    }

    /// Removes the entries of the table `lower`, which no CPU uses any more, and copies their pages into the folio that
    /// begins at `head`. Returns the counts, and the union of the bits of the copied pages' entries.
    fn gather_pages(
        &self,
        lower: Frame,
        head: Frame,
        gather: &mut Gather<'_, M>,
    ) -> (Collapsed, Bits) {
        let frames = self.frames();
        let mut bits = Bits::empty();
        let mut collapsed = Collapsed {
            copied: 0,
            zeroed: 0,
        };
        for (word, part) in frames.table_words(lower).iter().zip(0..FOLIO_FRAMES) {
            let target = Frame::new(head.number() + part);
            match word::decode(word.swap(0, Ordering::AcqRel), 1) {
                Entry::Present(page) if !page.bits.contains(Bits::BORROWED) => {
                    frames.copy(page.frame, target);
                    bits |= page.bits;
                    collapsed.copied += 1;
                    gather.hold(page.frame);
                }
                Entry::Present(_) | Entry::Empty => {
                    frames.clear(target);
                    collapsed.zeroed += 1;
                }
                Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => {
                    panic!("collapsed an entry that is no page")
                }
            }
        }
        (collapsed, bits)
    }
}
