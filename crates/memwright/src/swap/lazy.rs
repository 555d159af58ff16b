//! Pages whose contents may be lost, and pages that are not needed soon (Linux 7.2 `mm/madvise.c`,
//! `madvise_free_pte_range` and `madvise_cold`).

use memwright_table::{
    Bits, Cursor, Edit, Entry, Gather, Machine, Marks, PageRange, PageSize, Present,
};

use crate::error::AdviseError;
use crate::space::{Area, Core};
use crate::stats::Row;
use crate::vma::AreaFlags;

/// How the entry of a page with these bits becomes clean, in an area with these flags: a store after that makes it
/// dirty, and the contents count again. Who reads the dirty bit for another purpose is told (design rule 9).
fn cleaned(flags: AreaFlags, bits: Bits) -> Edit {
    let mut set = Bits::empty();
    let mut clear = Bits::DIRTY | Bits::FOLDED_DIRTY | Bits::ACCESSED;
    if bits.contains(Bits::DIRTY) {
        clear |= Bits::WATCHED;
        if !flags.contains(AreaFlags::WATCH_STORES) {
            set |= Bits::SOFT_DIRTY;
        }
    }
    Edit { set, clear }
}

impl<M: Machine> Core<M> {
    /// Says of the pages of `range` that their contents may be lost, until they are written again. Pages in swap go at
    /// once; those that others show stay as they are.
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
                // What is lost is not needed any more either.
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

    /// Whether a page is one of 4 KiB that nobody else shows. A watcher's is no exception: what was protected of it is
    /// not when it is gone, and it is missing then.
    fn may_be_lost(&self, page: Present) -> bool {
        let frames = self.memory.frames();
        page.size == PageSize::Size4K
            && !page.bits.intersects(Bits::BORROWED | Bits::MERGED)
            && self.is_anonymous(page.frame)
            && !frames.is_in_folio(page.frame)
            && frames.references(page.frame) == 1
            && frames.pins(page.frame) == 0
    }

    /// Takes the page under the cursor away if its contents may be lost. It stays if somebody wrote to it since.
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
        // Beside the entry's, which goes with it.
        let kept = frames.share(page.frame);
        let old = cursor.remove(gather);
        let written = old.present().filter(|old| dirty(old.bits));
        let Some(old) = written else {
            self.memory.count(Row::LazyDropped, 1);
            return true;
        };
        // A store came between the look and the removal. The table is there: filling it allocates nothing.
        gather.flush();
        let filled = cursor.fill(Entry::Present(old));
        debug_assert!(filled.is_ok());
        let _ = kept.into_raw();
        self.note_filled(self.cpu(), 1);
        false
    }

    /// Lets the pages of `range` look as if nobody had used them for a while.
    pub(crate) fn deactivate(&self, range: PageRange) {
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range).pausing();
        self.split_cut(&mut cursor, &mut gather, Row::HugeSplitsAdvise);
        cursor.edit_run(
            range.end,
            |_, page| {
                if page.bits.contains(Bits::ACCESSED) {
                    Edit {
                        set: Bits::FOLDED_ACCESSED,
                        clear: Bits::ACCESSED,
                    }
                } else {
                    Edit::NONE
                }
            },
            &mut gather,
        );
        drop(cursor);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
    }
}
