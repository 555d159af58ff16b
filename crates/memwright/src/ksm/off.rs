//! KSM without the feature `merge`: no page is merged, and no area becomes mergeable.

use memwright_table::{CpuId, Frame, FrameRef, Machine, OutOfFrames, PageRange, Present, Shared};

use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::mm::merging::Merging;
use crate::mm::space::AddressSpace;
use crate::mm::theme::Ksm;
use crate::types::error::AdviseError;
use crate::types::merge::{MergeCounts, MergedPages};
use crate::vma::area::AreaFlags;

/// Returns the flags unchanged.
pub(crate) fn mergeable(flags: AreaFlags, _on: bool) -> AreaFlags {
    flags
}

impl<M: Machine> Merging<M> {
    /// Does nothing: no parent is registered for scanning.
    pub(crate) fn enter_child(&self, _child: &Shared<Core<M>>) {}

    /// Does nothing: no address space is registered.
    pub(crate) fn leave(&self, _memory: &Memory<M>, _space: &Core<M>) {}

    /// Returns 0, because there is no KSM frame.
    pub fn shed(&self, _memory: &Memory<M>) -> u64 {
        0
    }

    /// Returns counts of 0.
    pub fn counts(&self, _memory: &Memory<M>) -> MergeCounts {
        MergeCounts::default()
    }

    /// Excludes nothing, because there is no scan.
    pub(crate) fn pause(&self) {}

    /// Does nothing but drop the reference: there is no index.
    pub(crate) fn exchange(&self, _memory: &Memory<M>, _old: Frame, _new: FrameRef<'_, M>) {}
}

impl<M: Machine> Memory<M> {
    /// Does nothing: there is no KSM frame.
    pub(crate) fn drop_merged(&self) {}

    /// Returns 0.
    pub fn merged_zero_pages(&self) -> u64 {
        0
    }

    /// Merges nothing. Returns that the pass is complete.
    pub fn merge_pages(&self, _budget: u64) -> bool {
        true
    }

    /// Does nothing: no page is merged.
    ///
    /// # Errors
    /// None.
    pub fn unmerge_all(&self) -> Result<(), OutOfFrames> {
        Ok(())
    }
}

impl<M: Machine> Ksm<'_, M> {
    /// Returns false.
    pub fn merges_all(&self) -> bool {
        false
    }

    /// Returns false.
    pub fn is_mergeable(&self) -> bool {
        false
    }

    /// Makes no area mergeable.
    ///
    /// # Errors
    /// [`OutOfFrames`] if `on`.
    pub fn merge_all(&self, on: bool) -> Result<(), OutOfFrames> {
        if on { Err(OutOfFrames) } else { Ok(()) }
    }

    /// Returns counts of 0.
    pub fn merged_pages(&self) -> MergedPages {
        MergedPages::default()
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Refuses the advice, as Linux without `CONFIG_KSM` does.
    pub(crate) fn advise_mergeable(&self, range: PageRange, _on: bool) -> Result<(), AdviseError> {
        Err(AdviseError::NotApplicable(range.start.address()))
    }
}

impl<M: Machine> Core<M> {
    /// Counts nothing: no page is merged.
    pub(crate) fn note_unmerged(&self, _cpu: CpuId) {}

    /// Returns false.
    pub(crate) fn is_merged(&self, _page: Present) -> bool {
        false
    }
}
