//! Faults on read-write-protected pages without the feature `uffd`.

use memwright_table::{Cursor, Machine, Present};

use crate::fault::attempt::Fault;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;

impl<M: Machine> Fault<'_, M> {
    /// Denies the access: no page is armed.
    pub(super) fn resolve_armed(
        self,
        _cursor: Cursor<'_, M>,
        _page: Present,
    ) -> Result<FaultKind, FaultError> {
        Err(FaultError::Denied)
    }

    /// Denies the access: no page is armed.
    pub(super) fn disarm(
        self,
        _cursor: &mut Cursor<'_, M>,
        _page: Present,
    ) -> Result<Present, FaultError> {
        Err(FaultError::Denied)
    }
}
