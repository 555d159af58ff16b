//! The places of new hugetlb areas without the feature `hugetlb`: there are none.

use memwright_table::{Machine, Page};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::ops::map::Placement;
use crate::types::error::MapError;

/// Finds no place.
///
/// # Errors
/// Always [`MapError::Unsupported`].
pub(super) fn place_hugetlb<M: Machine>(
    _core: &Core<M>,
    _areas: &mut Areas<M>,
    _pages: u64,
    _placement: Placement,
) -> Result<Page, MapError> {
    Err(MapError::Unsupported)
}
