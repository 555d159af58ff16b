//! Faults in shared memory without the feature `huge`: an object gets single pages.

use memwright_table::{Bits, Frame, Machine};

use crate::fault::attempt::Fault;
use crate::mm::object::Object;

impl<M: Machine> Fault<'_, M> {
    /// Returns false.
    pub(super) fn may_fill_object_folio(self) -> bool {
        false
    }

    /// Returns false.
    pub(super) fn fill_object_folio(self, _object: &dyn Object<M>) -> bool {
        false
    }

    /// Maps nothing: the page is in no folio.
    pub(super) fn map_object_folio(
        self,
        _object: &dyn Object<M>,
        _generation: u64,
        _frame: Frame,
        _written: Bits,
    ) {
    }
}
