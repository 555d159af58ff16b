//! Reclaim on request without the feature `reclaim`: only droppable memory is freed.

use memwright_table::{Machine, PageRange};

use crate::mm::core::Core;
use crate::ops::advise::{Advised, refuse_locked};
use crate::types::error::AdviseError;
use crate::vma::area::AreaFlags;

impl<M: Machine> Core<M> {
    /// Frees the pages of droppable memory in `range`. The advice has no effect on other memory.
    pub(super) fn advise_page_out(&self, range: PageRange) -> Result<Advised, AdviseError> {
        let mut advised = Advised::Done;
        self.for_each_area(range, |area, part| {
            refuse_locked(area, part)?;
            if area.flags().contains(AreaFlags::DROPPABLE) {
                return self.drop_pages(area, part);
            }
            advised = Advised::AdvisedOnly;
            Ok(())
        })?;
        Ok(advised)
    }
}
