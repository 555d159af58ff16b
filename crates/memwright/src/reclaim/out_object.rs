//! Selects the object pages to reclaim, according to the entries that map them (Linux 7.2 `mm/madvise.c`,
//! `madvise_cold_or_pageout_pte_range`, and `mm/vmscan.c`, `folio_check_references`).
//!
//! An area is scanned under the locks of its address space and page tables. The pages that the scan selects are swapped
//! out or written back after these locks are released, because that takes the locks of other address spaces and of the
//! object.

use alloc::sync::Arc;
use memwright_table::sync::pause_point;
use memwright_table::{
    Bits, Cursor, Entry, Extent, FrameKind, Gather, Machine, Page, PageRange, PageSize, Present,
};

use crate::mm::core::Core;
use crate::mm::object::Object;
use crate::mm::space::Area;
use crate::reclaim::effort::{Choice, Effort};
use crate::store::cluster::Cluster;
use crate::store::leaving::Leaving;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::idle::aging;

/// Pages of an object that the scan of one area has selected.
struct Found<M: Machine> {
    object: Arc<dyn Object<M>>,
    pages: Cluster,
    /// The page at which the scan stopped.
    end: Page,
}

impl<M: Machine> Core<M> {
    /// Returns whether a scan of this area with the limits in `effort` includes the pages of the area's object.
    pub(super) fn objects_are_scanned(&self, area: &Area<M>, effort: &Effort) -> bool {
        self.object_may_leave(area) && (!effort.charged || area.is_shared())
    }

    /// Returns whether pages of the area's object may be reclaimed by a scan of this area.
    pub(crate) fn object_may_leave(&self, area: &Area<M>) -> bool {
        let kept = AreaFlags::LOCKED | AreaFlags::SECRET | AreaFlags::HUGETLB | AreaFlags::PHYSICAL;
        area.object().is_some() && !area.flags().intersects(kept)
    }

    /// Swaps out or writes back the object pages that are mapped in `range` and that `choice` selects, until `effort`
    /// is used up. Returns the page at which the scan stopped.
    ///
    /// # Locks
    /// The caller holds no lock of an address space. Other threads can run meanwhile.
    pub(crate) fn page_out_objects(
        &self,
        range: PageRange,
        choice: Choice,
        effort: &mut Effort,
    ) -> Page {
        let mut next = range.start;
        while next < range.end && !effort.is_over() {
            pause_point::<M::Threads>();
            let rest = PageRange::new(next, range.end);
            let Some(found) = self.next_of_objects(rest, choice, effort) else {
                return range.end;
            };
            next = found.end;
            if found.pages.is_empty() {
                continue;
            }
            let leaving = Leaving {
                pages: found.pages,
                unused: choice == Choice::Unused,
                memcg: self.memcg(),
            };
            let left = found.object.send_out(&self.memory, &leaving);
            effort.wanted = effort.wanted.saturating_sub(left.pages);
            self.memory.count(Row::WrittenBack, left.written_back);
            if left.is_full {
                // The swap devices have no room for more pages: end the scan.
                effort.look = 0;
            }
        }
        next
    }

    /// Finds the next object pages to reclaim, in the first area of `range` that maps an object. Returns `None` if
    /// there is no such area.
    fn next_of_objects(
        &self,
        range: PageRange,
        choice: Choice,
        effort: &mut Effort,
    ) -> Option<Found<M>> {
        let cpu = self.cpu();
        let areas = self.areas.read(cpu);
        let mut shown = areas.map.overlapping(range);
        let area = shown.find(|area| self.objects_are_scanned(area, effort))?;
        let object = Arc::clone(area.object()?);
        self.note_peak(cpu);
        let mut gather = self.gather();
        let part = area.range().intersect(range);
        let (pages, end) = self.look_for_pages(area, part, choice, effort, &mut gather);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        Some(Found { object, pages, end })
    }

    /// Returns at most one cluster of object pages that `range`, a part of `area`, maps and that `choice` selects. Also
    /// returns the page at which the scan stopped.
    fn look_for_pages(
        &self,
        area: &Area<M>,
        range: PageRange,
        choice: Choice,
        effort: &mut Effort,
        gather: &mut Gather<'_, M>,
    ) -> (Cluster, Page) {
        let mut pages = Cluster::default();
        let mut cursor = self.table.cursor(range).pausing();
        while let Some(extent) = cursor.next_filled() {
            let at = cursor.position();
            if effort.is_over() {
                return (pages, at);
            }
            effort.look -= 1;
            if self.goes(&mut cursor, extent, choice, gather) {
                let end = extent.range.end.min(range.end);
                for page in PageRange::new(at, end).iter() {
                    if !pages.insert(area.offset_of(page)) {
                        return (pages, page);
                    }
                }
            }
            if !cursor.advance() {
                break;
            }
        }
        (pages, range.end)
    }

    /// Returns whether the entry under the cursor maps pages of the object and `choice` selects them. With
    /// `Choice::Unused`, ages accessed pages: clears their accessed bit.
    fn goes(
        &self,
        cursor: &mut Cursor<'_, M>,
        extent: Extent,
        choice: Choice,
        gather: &mut Gather<'_, M>,
    ) -> bool {
        let Entry::Present(page) = extent.entry else {
            return false;
        };
        if !self.is_of_object(page) {
            return false;
        }
        match choice {
            // `MADV_PAGEOUT` reclaims only pages that no other mapping uses (`folio_maybe_mapped_shared`).
            Choice::All => self.memory.frames().sharers(page.frame) == 1,
            Choice::Unused => {
                let Some(edit) = aging(page.bits) else {
                    return true;
                };
                if page.size != PageSize::Size4K {
                    cursor.widen();
                }
                cursor.edit(edit.set, edit.clear, gather);
                false
            }
        }
    }

    fn is_of_object(&self, page: Present) -> bool {
        !page.bits.contains(Bits::BORROWED)
            && matches!(self.memory.frames().kind(page.frame), FrameKind::Object)
    }
}
