//! Faults on objects without the feature `huge`: no entry maps a huge page of an object.

use memwright_table::Machine;

use crate::fault::attempt::Fault;
use crate::mm::object::Object;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;

impl<M: Machine> Fault<'_, M> {
    /// Returns false.
    pub(super) fn fits_huge(self) -> bool {
        false
    }

    /// Returns `None`: a 4 KiB page is to be mapped.
    pub(super) fn map_folio(
        self,
        _object: &dyn Object<M>,
        _generation: u64,
    ) -> Result<Option<FaultKind>, FaultError> {
        Ok(None)
    }
}
