//! Mappings of device memory without the feature `objects`: there are none.

use memwright_table::Machine;

use crate::mm::space::AddressSpace;
use crate::ops::map::MapRequest;
use crate::ops::populate::Mapped;
use crate::types::error::MapError;
use crate::types::uffd::{Watch, WatchEvent};

impl<M: Machine> AddressSpace<M> {
    /// Maps nothing.
    ///
    /// # Errors
    /// Always [`MapError::Unsupported`].
    pub(super) fn map_physical(
        &self,
        _request: &MapRequest<M>,
        _witness: &mut dyn FnMut(&Watch, WatchEvent),
    ) -> Result<Mapped, MapError> {
        Err(MapError::Unsupported)
    }
}
