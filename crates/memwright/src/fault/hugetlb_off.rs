//! Faults in hugetlb memory without the feature `hugetlb`: no area has hugetlb pages.

use memwright_table::{CpuId, Cursor, Machine, Present, VirtAddr};

use crate::fault::attempt::Fault;
use crate::mm::core::Core;
use crate::types::access::{Access, FaultKind};
use crate::types::error::FaultError;

impl<M: Machine> Fault<'_, M> {
    /// Denies the access: no area has hugetlb pages.
    pub(super) fn resolve_hugetlb(self) -> Result<FaultKind, FaultError> {
        Err(FaultError::Denied)
    }

    /// Denies the access: no area has hugetlb pages.
    pub(super) fn write_shared_hugetlb(
        self,
        _cursor: Cursor<'_, M>,
        _page: Present,
    ) -> Result<FaultKind, FaultError> {
        Err(FaultError::Denied)
    }
}

impl<M: Machine> Core<M> {
    /// Returns [`FaultError::NoHugePage`]. Never called: no fault fails with this error.
    pub(crate) fn fault_in_exhausted_pool(
        &self,
        _cpu: CpuId,
        _address: VirtAddr,
        _access: Access,
    ) -> Result<FaultKind, FaultError> {
        Err(FaultError::NoHugePage)
    }
}
