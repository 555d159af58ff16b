//! Reclaim: pages that were not accessed for a while are swapped out (Linux 7.2 `mm/vmscan.c`).
//!
//! Pages are aged where they are mapped, by a walk of the page tables of each address space, like the aging of Linux's
//! multi-generational LRU (`walk_mm`). One scan clears the accessed bits, and the next one finds which bits were set
//! again. No reverse mapping is needed, and adjacent pages are scanned, flushed and written together.

use memwright_table::{Architecture, Machine, Page, PageRange};

use crate::mm::core::Core;
use crate::mm::space::AddressSpace;
use crate::reclaim::effort::{Choice, Effort};

impl<M: Machine> AddressSpace<M> {
    /// Scans from `from` on: ages pages, and reclaims those that were not accessed since the previous scan. Private
    /// pages are swapped out. Pages of objects are swapped out or written back. Subtracts the entries scanned and the
    /// pages reclaimed from `effort`. Returns where to continue once `effort` is used up, or `None` at the end of the
    /// address space.
    ///
    /// The first call only ages pages that were accessed before it: it neither reclaims them nor subtracts them from
    /// `effort.wanted`. A later call reclaims those of them that were not accessed in between.
    ///
    /// # Locks
    /// Takes the lock of the areas for reading. Pages of objects are reclaimed without it.
    pub fn reclaim(&self, from: Page, effort: &mut Effort) -> Option<Page> {
        let core = &*self.core;
        let mut next = from.min(M::Arch::USER.end);
        while next < M::Arch::USER.end {
            let rest = PageRange::new(next, M::Arch::USER.end);
            // `reclaim_private` stops after the first area that maps an object. The pages of the object are reclaimed
            // after the lock is released.
            let (private_end, shown) = core.reclaim_private(rest, effort);
            if effort.is_over() {
                return Some(private_end);
            }
            next = core.page_out_objects(shown?, Choice::Unused, effort);
            if effort.is_over() {
                return Some(next);
            }
        }
        None
    }
}

impl<M: Machine> Core<M> {
    /// Reclaims private pages of `range`, up to the end of the first area with reclaimable pages of an object. Returns
    /// the page at which it stopped, and the range of the area with the object's pages.
    fn reclaim_private(&self, range: PageRange, effort: &mut Effort) -> (Page, Option<PageRange>) {
        let areas = self.areas.read(self.cpu());
        for area in areas.map.overlapping(range) {
            let part = area.range().intersect(range);
            if self.may_leave(area) && area.has_faulted() {
                let end = self.page_out(area, part, Choice::Unused, effort);
                if effort.is_over() {
                    return (end, None);
                }
            }
            if self.objects_are_scanned(area, effort) {
                return (part.end, Some(part));
            }
        }
        (range.end, None)
    }
}
