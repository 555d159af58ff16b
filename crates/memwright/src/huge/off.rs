//! Huge pages without the feature `huge`: nothing is collapsed, and no folio is split.

use core::ops::Range;
use memwright_table::{Machine, OutOfMemory, Page, PageRange};

use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::mm::object::Object;
use crate::mm::theme::HugePages;
use crate::types::error::AdviseError;
use crate::types::folio_split::{FolioSplit, FolioSplits, Scanned};

impl<M: Machine> HugePages<'_, M> {
    /// Collapses nothing. Returns [`Scanned::End`].
    pub fn scan(&self, _from: Page, _budget: &mut u64) -> Scanned {
        Scanned::End
    }

    /// Splits nothing: no folio is found.
    pub fn split_folios(&self, _range: PageRange, _split: FolioSplit) -> FolioSplits {
        FolioSplits::default()
    }
}

impl<M: Machine> Memory<M> {
    /// Splits nothing: no folio is found.
    pub fn split_object(
        &self,
        _object: &dyn Object<M>,
        _pages: Range<u64>,
        _split: FolioSplit,
    ) -> FolioSplits {
        FolioSplits::default()
    }

    /// Splits nothing: no folio is found.
    ///
    /// # Errors
    /// None.
    pub fn split_all_folios(&self) -> Result<FolioSplits, OutOfMemory> {
        Ok(FolioSplits::default())
    }
}

impl<M: Machine> Core<M> {
    /// Refuses the advice, as Linux without `CONFIG_TRANSPARENT_HUGEPAGE` does.
    pub(crate) fn advise_collapse(&self, range: PageRange) -> Result<(), AdviseError> {
        Err(AdviseError::NotApplicable(range.start.address()))
    }
}
