//! Forks without the feature `share`: they share no page tables.

use core::convert::Infallible;
use memwright_table::{CpuId, Gather, Machine, OutOfFrames, PageRange};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::space::Area;

/// The state of a fork that shares tables. Never created.
pub(super) struct Sharing(Infallible);

impl Sharing {
    /// Returns `None`: forks only copy.
    pub(super) fn begin<M: Machine>(_core: &Core<M>) -> Option<Self> {
        None
    }

    /// Never called.
    pub(super) fn pass<M: Machine>(&mut self, _area: &Area<M>) {
        match self.0 {}
    }

    /// Never called.
    pub(super) fn share<M: Machine>(
        &mut self,
        _parent: (&Core<M>, &Areas<M>),
        _child: (&Core<M>, CpuId),
        _area: &Area<M>,
        _gather: &mut Gather<'_, M>,
        _copy: impl FnMut(PageRange, &mut Gather<'_, M>) -> Result<u64, OutOfFrames>,
    ) -> Result<u64, OutOfFrames> {
        match self.0 {}
    }
}
