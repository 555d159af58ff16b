//! Merging one page (Linux 7.2 `mm/ksm.c`, `try_to_merge_one_page`). The code in `range/alike.rs` compares the page and
//! changes its entry.

use memwright_table::{Bits, Cursor, FrameKind, Gather, Machine, Page, PageRange, PageSize};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::range::alike::Target;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;

/// Why a page was not merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeFailure {
    /// Since the page was examined, it was unmapped or its area was made unmergeable.
    Gone,
    /// The page is pinned or has extra references.
    Busy,
    /// The contents of the page and of the target differ.
    Different,
}

impl<M: Machine> Core<M> {
    /// Merges the page, if it may still be merged and has the contents of the target.
    pub(super) fn merge_page(&self, page: Page, target: Target) -> Result<(), MergeFailure> {
        let cpu = self.cpu();
        let areas = self.areas.read(cpu);
        let area = areas.map.find(page);
        let area = area.filter(|area| area.flags().contains(AreaFlags::MERGEABLE));
        let area = area.ok_or(MergeFailure::Gone)?;
        self.note_peak(cpu);
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(PageRange::single(page));
        let merged = self.merge_under(area, &mut cursor, page, target, &mut gather);
        drop(cursor);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        if merged.is_ok() {
            let row = match target {
                Target::Merged(_) => {
                    self.note_filled(cpu, 1);
                    Row::Merges
                }
                Target::Zero | Target::Untouched => {
                    self.note_borrowed(cpu, 1);
                    Row::MergesZero
                }
            };
            self.memory.count_on(cpu, row, 1);
        }
        merged
    }

    fn merge_under(
        &self,
        area: &Area<M>,
        cursor: &mut Cursor<'_, M>,
        page: Page,
        target: Target,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), MergeFailure> {
        let entry = cursor.peek().present().ok_or(MergeFailure::Gone)?;
        if target == Target::Zero && area.object().is_some() {
            // Do not map the zero page in an area of an object. It would not count as a private copy there, so punching
            // a hole in the object would unmap it.
            return Err(MergeFailure::Busy);
        }
        if !self.may_merge(entry, page) {
            return Err(MergeFailure::Busy);
        }
        if entry.size != PageSize::Size4K {
            // Compare before the split: a huge page must not be split if the contents differ.
            if !self.has_contents_of(target, entry.frame_of(page)) {
                return Err(MergeFailure::Different);
            }
            cursor.widen();
            cursor.split(gather).map_err(|_| MergeFailure::Gone)?;
            self.memory.count(Row::HugeSplitsMerge, 1);
            cursor.seek(page);
        }
        let pages = PageRange::single(page);
        match self.show_equal(area, cursor, pages, target, &|_, _| true, gather) {
            0 => Err(MergeFailure::Different),
            _ => Ok(()),
        }
    }

    /// Sets `MERGED` in the entry of a page that maps a KSM frame without the bit, because a fork copied the entry.
    pub(super) fn note_inherited(&self, page: Page) {
        let areas = self.areas.read(self.cpu());
        let mergeable = |area: &Area<M>| area.flags().contains(AreaFlags::MERGEABLE);
        if !areas.map.find(page).is_some_and(mergeable) {
            return;
        }
        let mut gather = self.gather();
        let (mut cursor, entry) = self.table.entry_of(page);
        let shown = entry.present();
        if shown.is_some_and(|entry| self.memory.frames().kind(entry.frame) == FrameKind::Merged) {
            cursor.edit(Bits::MERGED, Bits::empty(), &mut gather);
        }
        drop(cursor);
        let _ = gather.finish();
    }
}
