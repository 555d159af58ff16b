//! Faults on huge pages without the feature `huge`: an entry maps a huge page only in hugetlb areas.

use memwright_table::{Cursor, Machine, Present};

use crate::fault::attempt::Fault;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;

/// Whether a first touch may map a huge page: never.
pub(super) const MAPS_HUGE: bool = false;

impl<M: Machine> Fault<'_, M> {
    /// Returns `None`: a 4 KiB page is to be mapped.
    pub(super) fn first_touch_huge(self) -> Option<FaultKind> {
        None
    }

    /// Denies the access: no entry maps a page that can be split.
    pub(super) fn split_for_store(self, _cursor: Cursor<'_, M>) -> Result<(), FaultError> {
        Err(FaultError::Denied)
    }

    /// Denies the access: no entry maps a page that can be split.
    pub(super) fn write_shared_folio(
        self,
        _cursor: Cursor<'_, M>,
        _page: Present,
    ) -> Result<FaultKind, FaultError> {
        Err(FaultError::Denied)
    }
}
