//! Naming anonymous memory (Linux 7.2 `mm/madvise.c`, `madvise_set_anon_name`).

use alloc::sync::Arc;
use memwright_table::sync::PausePoints;
use memwright_table::{Machine, Page, PageRange, VirtAddr};

use crate::mm::areas::{Areas, Backing};
use crate::mm::check;
use crate::mm::space::{AREAS, AddressSpace};
use crate::range::flags::{FlagsError, Holes};
use crate::types::area_name::AreaName;
use crate::types::error::NameError;

impl From<FlagsError> for NameError {
    fn from(error: FlagsError) -> Self {
        match error {
            FlagsError::Hole(address) => Self::Hole(address),
            FlagsError::OverLimit(limit) => Self::OverLimit(limit),
            FlagsError::Misaligned => Self::Misaligned,
            FlagsError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Names the anonymous memory in `length` bytes, rounded up to pages. `None` removes the name.
    ///
    /// # Errors
    /// See [`NameError`]. The areas before the address in the error are named. For [`NameError::Hole`], the areas after
    /// the hole are named too.
    pub fn name_memory(
        &self,
        address: VirtAddr,
        length: u64,
        name: Option<&Arc<AreaName>>,
    ) -> Result<(), NameError> {
        let core = &*self.core;
        let range = check::pages(address, length)?;
        let mut areas = core.areas.write();
        let file = first_file(&areas, range);
        let end = file.map_or(range.end, |page| page.max(range.start));
        let named = PageRange::new(range.start, end);
        let result = core.change_areas(
            &mut areas,
            named,
            Holes::Pass,
            |map, position| {
                let backing = map.get(position).backing();
                if backing.has_name(name) {
                    return Ok(None);
                }
                let before = map.previous(position).map(|at| map.get(at).backing());
                Backing::tag_with(before, backing.watcher(), name).map(Some)
            },
            |area, tag| area.backing.set_tag(tag),
        );
        match (result, file) {
            // Even if there is a hole below the file, return the error for the file.
            (Ok(()) | Err(FlagsError::Hole(_)), Some(_)) => {
                Err(NameError::NotAnonymous(end.address()))
            }
            (result, _) => Ok(result?),
        }
    }
}

/// Returns the first page of the first area of `range` that maps a file.
fn first_file<M: Machine>(areas: &Areas<M>, range: PageRange) -> Option<Page> {
    let mut points = PausePoints::<M::Threads>::every(AREAS);
    let mut areas = areas.map.overlapping(range);
    let file = areas.find(|area| {
        points.round();
        area.object().is_some_and(|object| !object.is_anonymous())
    });
    file.map(|area| area.start())
}
