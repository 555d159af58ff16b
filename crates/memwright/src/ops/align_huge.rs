//! Aligning new areas so that they can have huge pages.

use memwright_table::{FOLIO_ORDER, Machine, PAGE_SIZE, Page};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::ops::map::{MapKind, MapRequest, Placement, place};
use crate::types::huge::HUGE_PAGES;

/// Returns the start of a new area whose range was chosen to begin at `start`. If a suitable range is free, the
/// returned start is aligned so that the area can have huge pages. Anonymous memory is aligned if its length is a
/// multiple of the huge page size, whatever the settings are (Linux 7.2 `mm/mmap.c`, `__get_unmapped_area`). Shared
/// memory is aligned if it is at least as long as the largest folio that the settings allow for the object
/// (`mm/shmem.c`, `shmem_get_unmapped_area`). Device memory is aligned if it is at least as long as a huge page.
#[inline(always)]
pub(super) fn align_huge<M: Machine>(
    core: &Core<M>,
    areas: &mut Areas<M>,
    pages: u64,
    request: &MapRequest<M>,
    start: Page,
) -> Page {
    let is_small = pages < HUGE_PAGES && !core.memory.huge().any_shared_of_pages();
    if is_small || request.placement != Placement::Anywhere {
        return start;
    }
    let (offset, order) = match &request.kind {
        MapKind::Anonymous => (0, (pages % HUGE_PAGES == 0).then_some(FOLIO_ORDER)),
        MapKind::Object { object, offset, .. } => (
            offset / PAGE_SIZE as u64,
            object.largest_folio(&core.memory),
        ),
        // Alignment to 2 MiB allows entries of 2 MiB to map the memory.
        MapKind::Physical { start, .. } => (start.as_u64() / PAGE_SIZE as u64, Some(FOLIO_ORDER)),
    };
    let Some(order) = order else {
        return start;
    };
    let folio = 1 << order;
    let beyond = offset % folio;
    if pages < folio || start.number() % folio == beyond {
        return start;
    }
    let spare = folio - 1;
    let Ok(room) = place(core, areas, pages + spare, Placement::Anywhere) else {
        return start;
    };
    // Return the last start in the free range that is `beyond` pages above a multiple of the folio size, because the
    // offset in the object is also `beyond` pages above such a multiple.
    let last = room.number() + spare;
    Page::new(last - (last + folio - beyond) % folio)
}
