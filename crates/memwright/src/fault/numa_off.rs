//! NUMA hints and policies in faults without the feature `numa`.

use memwright_table::{Cursor, Machine, Present};

use crate::fault::attempt::Fault;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;

impl<M: Machine> Fault<'_, M> {
    /// Denies the access: no entry is a NUMA hint.
    pub(super) fn resolve_hint(
        self,
        _cursor: Cursor<'_, M>,
        _page: Present,
    ) -> Result<FaultKind, FaultError> {
        Err(FaultError::Denied)
    }

    /// Selects no nodes: no area has a policy.
    pub(crate) fn place(self) {}
}
