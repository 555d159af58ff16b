//! Lazy freeing on request without the feature `reclaim`: the pages are freed at once.

use memwright_table::{Machine, PageRange};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::types::error::AdviseError;
use crate::vma::area::AreaFlags;

impl<M: Machine> Core<M> {
    /// Frees the pages of `range`, a part of `area`, at once, like Linux before 4.12 on a machine without swap.
    pub(super) fn free(&self, area: &Area<M>, range: PageRange) -> Result<(), AdviseError> {
        if area.object().is_some() || area.flags().contains(AreaFlags::LOCKED) {
            return Err(AdviseError::NotApplicable(range.start.address()));
        }
        self.drop_pages(area, range)
    }
}
