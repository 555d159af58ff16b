//! Lazy freeing on request (`MADV_FREE`).

use memwright_table::{Machine, PageRange};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::types::error::AdviseError;

impl<M: Machine> Core<M> {
    /// Marks the pages of `range`, a part of `area`, as lazily freed.
    pub(super) fn free(&self, area: &Area<M>, range: PageRange) -> Result<(), AdviseError> {
        self.free_lazily(area, range)
    }
}
