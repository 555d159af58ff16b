//! Lazily freed pages, which reclaim may discard, and deactivated pages, which are not needed soon (Linux 7.2
//! `mm/madvise.c`, `madvise_free_pte_range` and `madvise_cold`).

use memwright_table::{
    Bits, Cursor, Edit, Entry, Gather, Machine, Marks, PageRange, PageSize, Present,
};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::types::error::AdviseError;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::idle::aging;

/// Returns the edit that cleans an entry with `bits`, in an area with `flags`. A later store makes the entry dirty
/// again, and reclaim then keeps the page. If the edit clears a dirty bit, it records the store for the store tracking
/// (rule: fold-before-clearing).
fn cleaned(flags: AreaFlags, bits: Bits) -> Edit {
    let mut set = Bits::empty();
    let mut clear = Bits::DIRTY | Bits::FOLDED_DIRTY | Bits::ACCESSED;
    if bits.contains(Bits::ACCESSED) {
        clear |= Bits::IDLE;
    }
    if bits.contains(Bits::DIRTY) {
        clear |= Bits::WATCHED;
        if !flags.contains(AreaFlags::WATCH_STORES) {
            set |= Bits::SOFT_DIRTY;
        }
    }
    Edit { set, clear }
}

impl<M: Machine> Core<M> {
    /// Marks the pages of `range` as lazily freed (`MADV_FREE`): reclaim may discard the contents of a page until it is
    /// written again. Swap entries are removed at once. Pages that other entries also map are not marked.
    pub(crate) fn free_lazily(&self, area: &Area<M>, range: PageRange) -> Result<(), AdviseError> {
        if area.object().is_some() || area.flags().contains(AreaFlags::LOCKED) {
            return Err(AdviseError::NotApplicable(range.start.address()));
        }
        let (frames, swap) = (self.memory.frames(), self.memory.swap());
        let mut gather = self.gather();
        let mut pages = 0;
        let mut cursor = self.table.cursor(range).pausing();
        while let Some(extent) = cursor.next_filled() {
            match extent.entry {
                Entry::Present(page) => {
                    let counted = !page.bits.contains(Bits::BORROWED);
                    pages += u64::from(counted) * extent.range.len();
                    if self.may_be_lost(page) {
                        swap.forget(frames, page.frame);
                        let edit = cleaned(area.flags(), page.bits);
                        cursor.edit(edit.set, edit.clear, &mut gather);
                        frames.set_lazy(page.frame, true);
                    }
                }
                Entry::Swapped(_) => {
                    cursor.remove(&mut gather);
                }
                // A poison marker is discarded like the contents of a page.
                Entry::Marker(marker) if marker.marks.contains(Marks::POISON) => {
                    cursor.remove(&mut gather);
                }
                Entry::Empty | Entry::Marker(_) | Entry::Migrating(_) => {}
            }
            if !cursor.advance() {
                break;
            }
        }
        drop(cursor);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
        self.memory.count(Row::LazyFreed, pages);
        Ok(())
    }

    /// Returns whether a page may be marked as lazily freed: it must be a 4 KiB page without other users. Pages
    /// registered with a userfaultfd may be marked too. If such a page is discarded, it loses its write protection, and
    /// its next access is a missing fault.
    fn may_be_lost(&self, page: Present) -> bool {
        let frames = self.memory.frames();
        page.size == PageSize::Size4K
            && !page.bits.intersects(Bits::BORROWED | Bits::MERGED)
            && self.is_anonymous(page.frame)
            && !frames.is_in_folio(page.frame)
            && frames.references(page.frame) == 1
            && frames.pins(page.frame) == 0
    }

    /// Discards the lazily freed page under the cursor, unless it has other users or was written after it was marked.
    /// Returns whether the page was discarded.
    pub(super) fn drop_lazy(
        &self,
        cursor: &mut Cursor<'_, M>,
        page: Present,
        gather: &mut Gather<'_, M>,
    ) -> bool {
        let frames = self.memory.frames();
        let dirty = |bits: Bits| bits.intersects(Bits::DIRTY | Bits::FOLDED_DIRTY);
        let unneeded = frames.is_lazy(page.frame)
            && !dirty(page.bits)
            && frames.references(page.frame) == 1
            && frames.pins(page.frame) == 0;
        if !unneeded {
            return false;
        }
        // Removing the entry drops the entry's reference. This extra reference keeps the frame allocated.
        let kept = frames.share(page.frame);
        let old = cursor.remove(gather);
        let written = old.present().filter(|old| dirty(old.bits));
        let Some(old) = written else {
            self.memory.count(Row::LazyDropped, 1);
            return true;
        };
        // A CPU stored to the page between the check and the removal: restore the entry. The page table exists, so this
        // allocates nothing.
        gather.flush();
        let filled = cursor.fill(Entry::Present(old));
        debug_assert!(filled.is_ok());
        let _ = kept.into_raw();
        self.note_filled(self.cpu(), 1);
        false
    }

    /// Ages the pages of `range`, so that reclaim treats them as not accessed recently (`MADV_COLD`).
    pub(crate) fn deactivate(&self, range: PageRange) {
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range).pausing();
        self.split_cut(&mut cursor, &mut gather, Row::HugeSplitsAdvise);
        cursor.edit_run(
            range.end,
            |_, page| aging(page.bits).unwrap_or(Edit::NONE),
            &mut gather,
        );
        drop(cursor);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
    }
}
