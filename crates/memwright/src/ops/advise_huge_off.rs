//! Advice about huge pages without the feature `huge`: it is refused.

use memwright_table::{Machine, PageRange};

use crate::mm::core::Core;
use crate::types::error::AdviseError;
use crate::vma::area::AreaFlags;

impl<M: Machine> Core<M> {
    /// Refuses the advice, as Linux without `CONFIG_TRANSPARENT_HUGEPAGE` does.
    pub(super) fn advise_huge(
        &self,
        range: PageRange,
        _flag: AreaFlags,
    ) -> Result<(), AdviseError> {
        Err(AdviseError::NotApplicable(range.start.address()))
    }
}
