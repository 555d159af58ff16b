//! Splitting huge entries without the feature `huge`: only hugetlb areas have huge entries, which are never split.

use memwright_table::{Cursor, Gather, Machine, Page, PageRange, PageSize, Present};

use crate::mm::core::Core;
use crate::types::stats::Row;

/// Returns false.
#[inline(always)]
pub(crate) fn is_splittable(_page: Present) -> bool {
    false
}

/// Returns the size of every entry that maps device memory.
pub(crate) fn device_entry_size(_page: Page, _number: u64, _end: Page) -> PageSize {
    PageSize::Size4K
}

impl<M: Machine> Core<M> {
    /// Does nothing: no edge cuts a huge page.
    pub(crate) fn split_cut(
        &self,
        _cursor: &mut Cursor<'_, M>,
        _gather: &mut Gather<'_, M>,
        _cause: Row,
    ) {
    }

    /// Does nothing: no edge cuts a huge page.
    pub(crate) fn split_at_edges(&self, _range: PageRange, _cause: Row) {}
}
