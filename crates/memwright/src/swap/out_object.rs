//! Which pages of objects leave memory, as the tables that show them tell (Linux 7.2 `mm/madvise.c`,
//! `madvise_cold_or_pageout_pte_range`, and `mm/vmscan.c`, `folio_check_references`).
//!
//! An area is looked at under the locks of its address space and its tables; what is found there is sent out when these
//! are free again, for then other address spaces are visited, and the object.

use alloc::sync::Arc;

use memwright_table::sync::pause_point;
use memwright_table::{
    Bits, Cursor, Entry, Extent, FrameKind, Gather, Machine, Page, PageRange, PageSize, Present,
};

use super::{Choice, Effort, Leaving};
use crate::object::{Cluster, Object};
use crate::space::{Area, Core};
use crate::stats::Row;
use crate::vma::AreaFlags;

/// Some pages of an object that the same area shows, and what lies behind them there.
struct Found<M: Machine> {
    object: Arc<dyn Object<M>>,
    pages: Cluster,
    /// Where the look ended.
    end: Page,
}

impl<M: Machine> Core<M> {
    /// Whether pages of the object that the area shows may leave memory, as far as this area tells.
    pub(crate) fn object_may_leave(&self, area: &Area<M>) -> bool {
        let kept = AreaFlags::LOCKED | AreaFlags::SECRET | AreaFlags::HUGETLB;
        area.object().is_some() && !area.flags().intersects(kept)
    }

    /// Sends those pages of objects out that `range` shows and `choice` names, until the effort is over. Returns where it
    /// ended. Called without a lock of any address space; other threads may run meanwhile.
    pub(crate) fn page_out_objects(
        &self,
        range: PageRange,
        choice: Choice,
        effort: &mut Effort,
    ) -> Page {
        let mut next = range.start;
        while next < range.end && !effort.is_over() {
            pause_point();
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
                payer: self.payer(),
            };
            let left = found.object.send_out(&self.memory, &leaving);
            effort.wanted = effort.wanted.saturating_sub(left.pages);
            self.memory.count(Row::WrittenBack, left.written_back);
            if left.is_full {
                // The others would find no room either.
                effort.look = 0;
            }
        }
        next
    }

    /// What to send out next of the first area of `range` that shows an object.
    fn next_of_objects(
        &self,
        range: PageRange,
        choice: Choice,
        effort: &mut Effort,
    ) -> Option<Found<M>> {
        let cpu = self.cpu();
        let areas = self.areas.read(cpu);
        let mut shown = areas.map.overlapping(range);
        let area = shown.find(|area| self.object_may_leave(area))?;
        let object = Arc::clone(area.object()?);
        self.note_peak(cpu);
        let mut gather = self.gather();
        let part = area.range().intersect(range);
        let (pages, end) = self.look_for_pages(area, part, choice, effort, &mut gather);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        Some(Found { object, pages, end })
    }

    /// Some of the object's pages that `range` of its area shows, and where the look ended.
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

    /// Whether the pages under the cursor are the object's, and chosen. Those that were used count as unused from here
    /// on.
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
            // Who else shows it may need it (`folio_maybe_mapped_shared`).
            Choice::All => self.memory.frames().sharers(page.frame) == 1,
            Choice::Unused if page.bits.contains(Bits::ACCESSED) => {
                if page.size != PageSize::Size4K {
                    cursor.widen();
                }
                cursor.edit(Bits::FOLDED_ACCESSED, Bits::ACCESSED, gather);
                false
            }
            Choice::Unused => true,
        }
    }

    fn is_of_object(&self, page: Present) -> bool {
        !page.bits.contains(Bits::BORROWED)
            && matches!(self.memory.frames().kind(page.frame), FrameKind::Object)
    }
}
