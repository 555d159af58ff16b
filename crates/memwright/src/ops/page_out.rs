//! Reclaim on request (`MADV_PAGEOUT`).

use memwright_table::{Machine, PageRange};

use crate::mm::core::Core;
use crate::ops::advise::{Advised, refuse_locked};
use crate::reclaim::effort::{Choice, Effort};
use crate::types::error::AdviseError;
use crate::vma::area::AreaFlags;

impl<M: Machine> Core<M> {
    /// Reclaims the pages of `range` (`MADV_PAGEOUT`). Without swap, reclaims only pages that may be discarded
    /// (`MADV_FREE`, `VM_DROPPABLE`) and pages of objects with a backing store (Linux 7.2 `mm/vmscan.c`,
    /// `shrink_folio_list`, and `mm/rmap.c`, `try_to_unmap_one`).
    pub(super) fn advise_page_out(&self, range: PageRange) -> Result<Advised, AdviseError> {
        let swaps = self.memory.swap().is_on();
        let mut advised = Advised::Done;
        let mut passed = range.start;
        let mut shows_objects = false;
        let result = self.for_each_area(range, |area, part| {
            refuse_locked(area, part)?;
            passed = part.end;
            if area.flags().contains(AreaFlags::DROPPABLE) {
                return self.drop_pages(area, part);
            }
            let shows_object = self.object_may_leave(area);
            shows_objects |= shows_object;
            if self.may_leave(area) && (swaps || self.memory.may_lose_pages()) {
                let mut effort = Effort::ALL;
                self.page_out(area, part, Choice::All, &mut effort);
            } else if !shows_object {
                advised = Advised::AdvisedOnly;
            }
            Ok(())
        });
        if shows_objects {
            // Reclaim the pages of objects without the lock of the areas, because this takes the locks of other address
            // spaces.
            let passed = PageRange::new(range.start, passed);
            let mut effort = Effort::ALL;
            self.page_out_objects(passed, Choice::All, &mut effort);
            if !swaps && effort.wanted == Effort::ALL.wanted {
                advised = Advised::AdvisedOnly;
            }
        }
        result.map(|()| advised)
    }
}
