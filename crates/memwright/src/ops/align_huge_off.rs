//! The start of new areas without the feature `huge`: they need no alignment.

use memwright_table::{Machine, Page};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::ops::map::MapRequest;

/// Returns `start`.
#[inline(always)]
pub(super) fn align_huge<M: Machine>(
    _core: &Core<M>,
    _areas: &mut Areas<M>,
    _pages: u64,
    _request: &MapRequest<M>,
    start: Page,
) -> Page {
    start
}
