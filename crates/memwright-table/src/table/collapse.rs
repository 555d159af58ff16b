//! Making one 2 MiB page out of 512 small ones.

use core::sync::atomic::Ordering;

use super::aside::HUGE_LEVEL;
use super::{ROOT_LEVEL, Table, slot_index};
use crate::addr::{Frame, PageRange, PageSize};
use crate::entry::x86_64::{self, Slot};
use crate::entry::{Bits, Entry, Present};
use crate::frame::{FOLIO_FRAMES, FrameRef};
use crate::gather::Gather;
use crate::machine::Machine;
use crate::mistake::{Mistake, planted};
use crate::sync::Rank;

/// What a collapse did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed {
    /// Pages copied into the folio.
    pub copied: u64,
    /// Pages that were not there, or showed the zero frame: zeroes now.
    pub zeroed: u64,
}

impl<M: Machine> Table<M> {
    /// Copies the pages of `range`, the 512 of one lowest table, into `folio` and maps that in their place, with
    /// the bits that `decide` makes of all that the entries had together. The lowest table is unlinked first and
    /// forgotten by every CPU, those that walk through it too (design rules 1 and 3), so that a store of another
    /// CPU lands before the copy or faults; then it is the table set aside for the new page. The caller holds the
    /// write lock of the address space and has looked at the entries: empty, or pages. `None`: there is no lowest
    /// table, and nothing has changed.
    ///
    /// # Panics
    /// If `folio` is no whole folio, or an entry is neither empty nor a page.
    pub fn collapse(
        &self,
        range: PageRange,
        folio: FrameRef<'_, M>,
        decide: impl FnOnce(Bits) -> Bits,
        gather: &mut Gather<'_, M>,
    ) -> Option<Collapsed> {
        assert!(folio.is_whole(), "a collapse needs a folio");
        let frames = self.frames();
        let (mut node, mut level) = (self.root(), ROOT_LEVEL);
        while level > HUGE_LEVEL {
            let word = &frames.table_words(node)[slot_index(range.start, level)];
            match x86_64::slot(word.load(Ordering::Acquire), level) {
                Slot::Table(lower) => (node, level) = (lower, level - 1),
                Slot::Entry => return None,
            }
        }
        let slot = &frames.table_words(node)[slot_index(range.start, HUGE_LEVEL)];
        let Slot::Table(lower) = x86_64::slot(slot.load(Ordering::Acquire), HUGE_LEVEL) else {
            return None;
        };
        let (above, below) = (frames.meta(node), frames.meta(lower));
        above.lock.lock(Rank::Table);
        below.lock.lock(Rank::TableChild);
        slot.store(0, Ordering::Release);
        below.owner.store(0, Ordering::Relaxed);
        gather.record_unlinked();
        if !planted(Mistake::CollapseUnflushed) {
            gather.flush();
        }

        let (collapsed, bits) = self.gather_pages(lower, folio.frame(), gather);
        below.live.store(0, Ordering::Relaxed);
        let page = Present {
            frame: folio.into_raw(),
            size: PageSize::Size2M,
            bits: decide(bits),
        };
        let new = x86_64::encode_present(page);
        let next = above.aside.swap(lower.number(), Ordering::Relaxed);
        below.set_link(next);
        slot.store(new, Ordering::Release);
        self.count_large(0, new);
        below.lock.unlock(Rank::TableChild);
        above.lock.unlock(Rank::Table);
        Some(collapsed)
    }

    /// Empties a table that no CPU knows of any more into a folio; returns all bits of its entries together.
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
            match x86_64::decode(word.swap(0, Ordering::AcqRel), 1) {
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
