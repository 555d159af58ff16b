//! Advice about huge pages (Linux 7.2 `mm/khugepaged.c`, `hugepage_madvise`).

use memwright_table::{Machine, PageRange};

use crate::mm::core::Core;
use crate::range::flags::Holes;
use crate::types::error::AdviseError;
use crate::vma::area::AreaFlags;

impl<M: Machine> Core<M> {
    /// Sets `flag`, one of the two huge page flags, and clears the other one (Linux 7.2 `mm/khugepaged.c`,
    /// `hugepage_madvise`).
    pub(super) fn advise_huge(&self, range: PageRange, flag: AreaFlags) -> Result<(), AdviseError> {
        let mut areas = self.areas.write();
        let both = AreaFlags::HUGE | AreaFlags::NOT_HUGE;
        let rule = |flags: AreaFlags| (flags - both) | flag;
        Ok(self.change_flags(&mut areas, range, Holes::Pass, rule)?)
    }
}
