//! Collapsing shared memory: pages of an object become one huge page, which this address space can then map (Linux 7.2
//! `mm/khugepaged.c`, `collapse_file` and `collapse_pte_mapped_thp`).

use alloc::sync::Arc;
use memwright_table::{Bits, Entry, Machine, PageRange, PageSize, Present};

use crate::huge::collapse::CollapseFailure;
use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::object::{CollapseError, CollapseLimits, Object};
use crate::mm::space::Area;
use crate::vma::area::AreaFlags;
use crate::vma::huge::HugeAsker;
use crate::vma::writable::{access_bits, upgrade};

impl From<CollapseError> for CollapseFailure {
    fn from(error: CollapseError) -> Self {
        match error {
            CollapseError::NotEligible => Self::NotEligible,
            CollapseError::Busy => Self::Busy,
            CollapseError::NoFrames => Self::NoFrames,
        }
    }
}

/// The number of attempts to collapse pages if one of them has extra references. Such a reference can be that of an
/// operation that looked up the page before it was unmapped. The operation drops it soon, so a retry may succeed.
const ATTEMPTS: u32 = 3;

/// Returns whether the area at the start of `range` maps an object.
pub(super) fn shows_object<M: Machine>(areas: &Areas<M>, range: PageRange) -> bool {
    let area = areas.map.find(range.start);
    area.is_some_and(|area| area.object().is_some())
}

impl<M: Machine> Core<M> {
    /// Returns whether a scan should collapse `range`: the area allows a huge page there, and the first page that is
    /// mapped in the range is a 4 KiB page.
    pub(super) fn is_mapped_small(&self, areas: &Areas<M>, range: PageRange) -> bool {
        let area = areas.map.find(range.start);
        let fits = area.is_some_and(|area| self.area_may_be_huge(area, range, HugeAsker::Setting));
        let mut look = self.table.look(range);
        fits && look.next_filled().is_some_and(|extent| match extent.entry {
            Entry::Present(page) => page.size == PageSize::Size4K,
            Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => false,
        })
    }

    /// Collapses the object's pages `range` of the area into one huge page, unless they already are one. Fails if more
    /// pages are missing or in swap than `limits` allows. Then maps the huge page, if `asker` is the program. For a
    /// scan, only removes the page table of the small pages, so that the next fault maps the huge page. Returns whether
    /// the huge page was mapped, or the page table removed.
    pub(super) fn collapse_object(
        &self,
        range: PageRange,
        asker: HugeAsker,
        mut limits: CollapseLimits,
    ) -> Result<bool, CollapseFailure> {
        let (object, first) = {
            let areas = self.areas.read(self.cpu());
            let area = areas.map.find(range.start);
            let area = area.filter(|area| self.area_may_be_huge(area, range, asker));
            let area = area.ok_or(CollapseFailure::NotEligible)?;
            let object = area.object().ok_or(CollapseFailure::NotEligible)?;
            // A collapse would fill the missing pages without notifying the userfaultfd context.
            if area.flags().intersects(AreaFlags::UFFD) {
                limits.missing = 0;
            }
            (Arc::clone(object), area.offset_of(range.start))
        };
        let mut outcome = object.collapse(first, limits);
        for _ in 1..ATTEMPTS {
            if outcome != Err(CollapseError::Busy) {
                break;
            }
            outcome = object.collapse(first, limits);
        }
        outcome?;
        Ok(match asker {
            HugeAsker::Program => self.map_whole(range, &*object, first),
            HugeAsker::Setting => self.take_table(range, &*object, first),
        })
    }

    /// Removes the lowest-level page table of `range` if its entries map only the object's own pages, and the area has
    /// no userfaultfd or markers. The next fault maps the huge page. Returns whether the table was removed.
    fn take_table(&self, range: PageRange, object: &dyn Object<M>, first: u64) -> bool {
        let areas = self.areas.write();
        let area = areas.map.find(range.start);
        let area = area.filter(|area| self.still_shows(area, range, object, first));
        if area.is_none_or(|area| area.flags().intersects(AreaFlags::MARKED | AreaFlags::UFFD)) {
            return false;
        }
        let mut look = self.table.look(range);
        while let Some(extent) = look.next_filled() {
            let own = match extent.entry {
                // The shared zero page, which `UFFDIO_ZEROPAGE` maps in a private area, is not a page of the object.
                Entry::Present(page) => {
                    !self.is_private(page.frame) && !page.bits.contains(Bits::BORROWED)
                }
                Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => false,
            };
            if !own {
                return false;
            }
            if !look.advance() {
                break;
            }
        }
        drop(look);
        self.remove_entries(self.cpu(), range);
        true
    }

    /// Returns whether `area` maps the object from index `first` on at `range`. The caller has looked up the area
    /// again.
    fn still_shows(
        &self,
        area: &Area<M>,
        range: PageRange,
        object: &dyn Object<M>,
        first: u64,
    ) -> bool {
        let same = area.object().is_some_and(|shown| {
            core::ptr::addr_eq(Arc::as_ptr(shown), core::ptr::from_ref(object))
        });
        same && self.area_may_be_huge(area, range, HugeAsker::Program)
            && area.offset_of(range.start) == first
    }

    /// Maps the object's huge page in place of its small pages, if nothing else is mapped in `range`. Does nothing if
    /// the area or the object has changed meanwhile: faults then map the current pages. Returns whether the huge page
    /// was mapped.
    fn map_whole(&self, range: PageRange, object: &dyn Object<M>, first: u64) -> bool {
        let areas = self.areas.write();
        let area = areas.map.find(range.start);
        let Some(area) = area.filter(|area| self.still_shows(area, range, object, first)) else {
            return false;
        };
        let Some(head) = object.folio(&self.memory, first, false) else {
            return false;
        };
        let folio = self.memory.frames().adopt_whole(head);
        // The soft-dirty bits of the small pages are lost, so the huge page counts as written.
        let mut bits = access_bits(area.rights()) | Bits::SOFT_DIRTY;
        let policy = self.memory.policy().write_upgrade();
        let verdict = upgrade(area.view(), bits, policy);
        bits.set(Bits::WRITE, verdict.is_writable());
        let cpu = self.cpu();
        let mut cursor = self.table.cursor(range);
        let mapped = if cursor.is_in_last_table() {
            drop(cursor);
            let mut gather = self.gather();
            let mapped = self.table.retract(range, folio, bits, &mut gather);
            let counts = gather.close();
            self.note_gather(cpu, counts);
            mapped
        } else {
            let entry = Entry::Present(Present {
                frame: head,
                size: PageSize::Size2M,
                bits,
            });
            let filled = cursor.peek() == Entry::Empty && cursor.fill(entry).is_ok();
            if filled {
                let _ = folio.into_raw();
            }
            filled
        };
        if mapped {
            self.note_filled_huge(cpu);
            self.note_objects(cpu, PageSize::Size2M.pages());
            self.memory.count_mapped_whole();
        }
        mapped
    }
}
