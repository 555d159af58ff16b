//! `MADV_MERGEABLE` and `MADV_UNMERGEABLE` (Linux 7.2 `mm/ksm.c`, `ksm_madvise`).

use memwright_table::{Machine, PageRange};

use crate::ksm::apart::mergeable;
use crate::mm::space::AddressSpace;
use crate::range::flags::Holes;
use crate::types::error::AdviseError;

impl<M: Machine> AddressSpace<M> {
    /// If `on`, makes the areas of `range` mergeable. Otherwise unmerges their KSM pages and makes them unmergeable
    /// (`ksm_madvise`). Areas that KSM can never merge do not change.
    pub(crate) fn advise_mergeable(&self, range: PageRange, on: bool) -> Result<(), AdviseError> {
        let core = &self.core;
        if on {
            let entered = core.memory.merging().enter(core);
            entered.map_err(|_| AdviseError::OutOfMemory)?;
        }
        let mut areas = core.areas.write();
        if !on {
            let apart = core.unmerge(&areas, range);
            apart.map_err(|_| AdviseError::OutOfMemory)?;
        }
        let rule = |flags| mergeable(flags, on);
        Ok(core.change_flags(&mut areas, range, Holes::Pass, rule)?)
    }
}
