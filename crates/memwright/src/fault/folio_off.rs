//! First touches without the feature `huge`: each maps a single page.

use memwright_table::Machine;

use crate::fault::attempt::Fault;
use crate::types::access::FaultKind;

impl<M: Machine> Fault<'_, M> {
    /// Returns `None`: a single page is to be mapped.
    pub(super) fn first_touch_folio(self) -> Option<FaultKind> {
        None
    }
}
