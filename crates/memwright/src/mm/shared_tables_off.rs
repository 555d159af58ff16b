//! Page tables that several address spaces share, without the feature `share`: there are none.

use memwright_table::{CpuId, Gather, Machine, PageRange};

use crate::mm::core::Core;

impl<M: Machine> Core<M> {
    /// Does nothing: no table is shared.
    pub(crate) fn leave_shared(&self, _cpu: CpuId, _range: PageRange, _gather: &mut Gather<'_, M>) {
    }
}
