//! The places of new hugetlb areas (Linux 7.2 `mm/hugetlb.c`, `hugetlb_get_unmapped_area`).

use memwright_table::{Machine, Page, VirtAddr};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::huge_file::HUGE_BYTES;
use crate::ops::map::{Placement, place};
use crate::types::error::MapError;
use crate::types::huge::HUGE_PAGES;

/// Chooses the start of a new hugetlb area, aligned to the huge page size.
#[cold]
pub(super) fn place_hugetlb<M: Machine>(
    core: &Core<M>,
    areas: &mut Areas<M>,
    pages: u64,
    placement: Placement,
) -> Result<Page, MapError> {
    let placement = match placement {
        Placement::Fixed(address) | Placement::FixedNoReplace(address) => {
            if address.as_u64() % HUGE_BYTES != 0 {
                return Err(MapError::Misaligned);
            }
            placement
        }
        Placement::Hint(address) => match address.as_u64().checked_next_multiple_of(HUGE_BYTES) {
            Some(hint) => Placement::Hint(VirtAddr::new(hint)),
            None => Placement::Anywhere,
        },
        Placement::Anywhere => placement,
    };
    let start = place(core, areas, pages, placement)?;
    if start.number() % HUGE_PAGES == 0 {
        return Ok(start);
    }
    // Search for a range that is almost one huge page longer, and use the last aligned start in it.
    let spare = HUGE_PAGES - 1;
    let start = place(core, areas, pages + spare, Placement::Anywhere)?;
    Ok(Page::new((start.number() + spare) & !spare))
}
