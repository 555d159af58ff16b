//! Unmerging of KSM pages (Linux 7.2 `mm/ksm.c`, `break_ksm`).

use memwright_table::{
    Architecture, Bits, CpuId, Cursor, Entry, FrameKind, Gather, Machine, OutOfFrames, PageRange,
    PageSize, Present,
};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::mm::space::Area;
use crate::mm::theme::Ksm;
use crate::types::access::FaultKind;
use crate::types::merge::MergedPages;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::writable::writable;

/// Flags of areas that are never mergeable, even if requested (`vma_ksm_compatible`).
const NEVER: AreaFlags = AreaFlags::SHARED
    .union(AreaFlags::HUGETLB)
    .union(AreaFlags::DROPPABLE)
    .union(AreaFlags::SECRET);

/// Returns the flags of an area after `MADV_MERGEABLE` if `on`, otherwise after `MADV_UNMERGEABLE`.
pub(crate) fn mergeable(flags: AreaFlags, on: bool) -> AreaFlags {
    if on && !flags.intersects(NEVER) {
        flags | AreaFlags::MERGEABLE
    } else {
        flags - AreaFlags::MERGEABLE
    }
}

/// Returns the bits of an entry whose page was copied to a private frame; `bits` are those of the entry before the
/// copy. The frame has the only copy of the contents, so the page is dirty. Only the software dirty bit is set, because
/// there is no store to report to the write tracking.
fn own_bits(bits: Bits) -> Bits {
    (bits - (Bits::MERGED | Bits::BORROWED)) | Bits::EXCLUSIVE | Bits::FOLDED_DIRTY
}

impl<M: Machine> Memory<M> {
    /// Returns the number of entries that map the zero page because they were merged (`ksm_zero_pages`).
    pub fn merged_zero_pages(&self) -> u64 {
        let (mut number, mut pages) = (0, 0);
        while let Some((found, space)) = self.merging().space_from(number) {
            pages += space.merged_pages().zero;
            number = found + 1;
        }
        pages
    }

    /// Unmerges all KSM pages (`/sys/kernel/mm/ksm/run`, 2).
    ///
    /// # Errors
    /// No frame is free. Pages that were already unmerged stay unmerged.
    pub fn unmerge_all(&self) -> Result<(), OutOfFrames> {
        let merging = self.merging();
        let round = merging.round.lock();
        let mut number = 0;
        while let Some((found, space)) = merging.space_from(number) {
            let all = M::Arch::USER;
            let areas = space.areas.read(space.cpu());
            space.unmerge(&areas, all)?;
            number = found + 1;
        }
        drop(round);
        merging.shed(self);
        Ok(())
    }
}

impl<M: Machine> Ksm<'_, M> {
    /// Returns whether all areas that can be mergeable are mergeable, including future ones (`PR_GET_MEMORY_MERGE`).
    pub fn merges_all(&self) -> bool {
        self.space.core.areas.read(self.space.core.cpu()).merge_all
    }

    /// Returns whether any area is mergeable, or whether `PR_SET_MEMORY_MERGE` makes future areas mergeable
    /// (`ksm_process_mergeable`).
    pub fn is_mergeable(&self) -> bool {
        let areas = self.space.core.areas.read(self.space.core.cpu());
        let all = M::Arch::USER;
        let mut of_all = areas.map.overlapping(all);
        areas.merge_all || of_all.any(|area| area.flags().contains(AreaFlags::MERGEABLE))
    }

    /// If `on`, makes all areas mergeable, including future ones. Otherwise unmerges the pages of all areas, and makes
    /// all areas unmergeable (`PR_SET_MEMORY_MERGE`).
    ///
    /// # Errors
    /// No frame is free for pages that are to be unmerged, or there is no heap memory.
    pub fn merge_all(&self, on: bool) -> Result<(), OutOfFrames> {
        let core = &self.space.core;
        if on {
            core.memory.merging().enter(core).map_err(|_| OutOfFrames)?;
        }
        let mut areas = core.areas.write();
        if !on && areas.merge_all {
            let all = M::Arch::USER;
            core.unmerge(&areas, all)?;
        }
        if on || areas.merge_all {
            areas
                .map
                .for_each_mut(|area| area.flags = mergeable(area.flags, on));
        }
        areas.merge_all = on;
        Ok(())
    }

    /// Returns the counts of the KSM pages of this address space (`/proc/PID/ksm_stat`).
    pub fn merged_pages(&self) -> MergedPages {
        self.space.core.merged_pages()
    }
}

impl<M: Machine> Core<M> {
    /// Counts the KSM pages by a walk of the entries of all mergeable areas.
    fn merged_pages(&self) -> MergedPages {
        let mut found = MergedPages::default();
        if !self.merge_number.may_have_merged() {
            return found;
        }
        let areas = self.areas.read(self.cpu());
        for area in areas.map.iter() {
            if !area.flags().contains(AreaFlags::MERGEABLE) || area.range().is_empty() {
                continue;
            }
            let mut cursor = self.table.look(area.range()).pausing();
            while let Some(extent) = cursor.next_filled() {
                let page = extent.entry.present();
                let bits = page.map_or(Bits::empty(), |page| page.bits);
                if bits.contains(Bits::MERGED | Bits::BORROWED) {
                    found.zero += 1;
                } else if bits.contains(Bits::MERGED) {
                    found.merged += 1;
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
        drop(areas);
        self.memory
            .merging()
            .add_lone(self.merge_number.get(), &mut found);
        found
    }

    /// Gives every KSM page of `range` in a mergeable area a private frame.
    pub(crate) fn unmerge(&self, areas: &Areas<M>, range: PageRange) -> Result<(), OutOfFrames> {
        let cpu = self.cpu();
        let mut gather = self.gather();
        let mut result = Ok(());
        for area in areas.map.overlapping(range) {
            if !area.flags().contains(AreaFlags::MERGEABLE) {
                continue;
            }
            let mut cursor = self.table.cursor(area.range().intersect(range)).pausing();
            while let (Ok(()), Some(extent)) = (result, cursor.next_filled()) {
                if let Entry::Present(page) = extent.entry {
                    if self.is_merged(page) {
                        result = self.unmerge_page(area, &mut cursor, page, &mut gather);
                    }
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
        let counts = gather.close();
        self.note_gather(cpu, counts);
        result
    }

    /// Counts a KSM page that a store is about to copy. Out of line, to keep registers free in the fault path.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_unmerged(&self, cpu: CpuId) {
        self.memory.count_on(cpu, Row::UnmergesWritten, 1);
    }

    /// Returns whether the entry of `page` maps a KSM frame, or maps the zero page because the page was merged.
    pub(crate) fn is_merged(&self, page: Present) -> bool {
        page.bits.contains(Bits::MERGED)
            || page.size == PageSize::Size4K
                && self.memory.frames().kind(page.frame) == FrameKind::Merged
    }

    /// Replaces the KSM page under the cursor by a private copy: empties the entry, flushes, then sets the new entry
    /// (rule: flush-what-shrank).
    fn unmerge_page(
        &self,
        area: &Area<M>,
        cursor: &mut Cursor<'_, M>,
        page: Present,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), OutOfFrames> {
        let cpu = self.cpu();
        let frames = self.memory.frames();
        let row = if page.bits.contains(Bits::BORROWED) {
            Row::FramesZeroed
        } else {
            Row::FramesCopied
        };
        let new = if page.bits.contains(Bits::BORROWED) {
            frames.allocate_zeroed(0, FrameKind::Anonymous)?
        } else {
            let new = frames.allocate(0, FrameKind::Anonymous)?;
            frames.copy(page.frame, new.frame());
            new
        };
        let old = cursor.remove(gather).present();
        gather.flush();
        let mut bits = own_bits(old.map_or(page.bits, |old| old.bits));
        if writable(area.view(), bits).is_writable() {
            bits |= Bits::WRITE;
        }
        // The table exists, so setting the entry that was just emptied allocates nothing.
        cursor.fill(Entry::page(new.into_raw(), bits))?;
        self.note_filled(cpu, 1);
        self.memory.count_on(cpu, row, 1);
        if !page.bits.contains(Bits::BORROWED) {
            self.memory.count_on(cpu, Row::UnmergesAsked, 1);
        }
        // Linux breaks each KSM page by a fault (`mm/ksm.c`, `break_ksm`), so count a page faulted in.
        let _ = self.count_page_faulted_in(Ok(FaultKind::Copy));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_areas_may_be_mergeable() {
        let plain = AreaFlags::HUGE | AreaFlags::LOCKED;
        let mergeable_now = plain | AreaFlags::MERGEABLE;
        assert_eq!(mergeable(plain, true), mergeable_now);
        assert_eq!(mergeable(mergeable_now, false), plain);
        let never = [
            AreaFlags::SHARED,
            AreaFlags::HUGETLB,
            AreaFlags::DROPPABLE,
            AreaFlags::SECRET,
        ];
        for flag in never {
            assert_eq!(mergeable(flag, true), flag);
        }
    }

    #[test]
    fn a_page_apart_is_its_owners_and_unwritten() {
        let bits = Bits::READ | Bits::MERGED | Bits::BORROWED | Bits::UFFD_WP | Bits::WATCHED;
        let own = own_bits(bits);
        assert!(own.contains(Bits::EXCLUSIVE | Bits::UFFD_WP | Bits::WATCHED | Bits::FOLDED_DIRTY));
        assert!(!own.intersects(Bits::MERGED | Bits::BORROWED | Bits::DIRTY | Bits::SOFT_DIRTY));
    }
}
