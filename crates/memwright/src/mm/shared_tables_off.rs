//! Page tables that several address spaces share, without the feature `share`: there are none.

use memwright_table::{CpuId, CutTables, Gather, Machine, PageRange};

use crate::mm::core::Core;

impl<M: Machine> Core<M> {
    /// Does nothing, and returns `None`: the caller removes the entries one by one.
    #[inline(always)]
    pub(crate) fn remove_tables(
        &self,
        _cpu: CpuId,
        _range: PageRange,
        _gather: &mut Gather<'_, M>,
    ) -> Option<CutTables> {
        None
    }
}
