//! Unregistering memory (Linux 7.3 `mm/userfaultfd.c`, `userfaultfd_unregister` and `userfaultfd_release`).

use memwright_table::sync::PausePoints;
use memwright_table::{Machine, OutOfFrames, PageRange, VirtAddr};

use crate::mm::areas::{Areas, cuts_hugetlb};
use crate::mm::core::Core;
use crate::mm::space::AREAS;
use crate::mm::theme::Uffd;
use crate::types::error::WatchError;
use crate::types::uffd::{Watch, WatchModes};
use crate::uffd::{can_watch, pages};
use crate::vma::area::AreaFlags;

impl<M: Machine> Uffd<'_, M> {
    /// Unregisters the areas of the `length` bytes from `address` on from `watch`, and removes their write protection.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn unwatch(&self, address: VirtAddr, length: u64, watch: &Watch) -> Result<(), WatchError> {
        let core = &*self.space.core;
        let range = pages(core, address, length)?;
        let mut areas = core.areas.write();
        if areas.map.overlapping(range).next().is_none() {
            return Err(WatchError::NoArea);
        }
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.overlapping(range) {
            points.round();
            let backing = area.backing();
            let unwatched = backing.has_watcher(None)
                && can_watch(area, WatchModes::empty(), watch.asynchronous);
            let cut = cuts_hugetlb(area.flags(), area.range().intersect(range));
            if cut || !unwatched && !backing.has_watcher(Some(watch)) {
                return Err(WatchError::NotApplicable(area.start().address()));
            }
        }
        core.end_protection(&areas, range, watch)?;
        core.end_watch(&mut areas, range, watch)
    }

    /// Unregisters all memory from `watch`, whose descriptor is closed. This needs no free frame, because only complete
    /// areas change, so that no area is split. If a marker extends beyond the registered memory and no frame is free to
    /// split it, the marker stays. It has no effect until the memory is registered again.
    pub fn forget_watch(&self, watch: &Watch) {
        let core = &*self.space.core;
        let mut areas = core.areas.write();
        let _ = core.end_protection(&areas, core.bounds(), watch);
        let ended = core.end_watch(&mut areas, core.bounds(), watch);
        debug_assert!(ended.is_ok());
    }
}

impl<M: Machine> Core<M> {
    /// Removes the protection of the memory in `range` that is registered with `watch`.
    ///
    /// # Errors
    /// [`OutOfFrames`] if a marker extends beyond the registered memory and no frame is free to split it. Such a marker
    /// remains, but all pages are unprotected.
    fn end_protection(
        &self,
        areas: &Areas<M>,
        range: PageRange,
        watch: &Watch,
    ) -> Result<(), OutOfFrames> {
        const PROTECTED: AreaFlags = AreaFlags::UFFD_WP.union(AreaFlags::UFFD_RWP);
        let protected = || {
            areas.map.overlapping(range).filter(|area| {
                let mine = area.backing().has_watcher(Some(watch));
                mine && area.flags().intersects(PROTECTED)
            })
        };
        let cpu = self.cpu();
        let mut gather = self.gather();
        let mut result = Ok(());
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        // Remove the markers of adjacent areas together, because two areas that a protection change has split can share
        // a marker.
        let mut run = PageRange::new(range.start, range.start);
        for area in protected() {
            points.round();
            if area.watches_accesses() {
                continue;
            }
            let part = area.range().intersect(range);
            if part.start != run.end {
                result = result.and(self.unmark_protected(run, &mut gather));
                run.start = part.start;
            }
            run.end = part.end;
        }
        result = result.and(self.unmark_protected(run, &mut gather));
        for area in protected() {
            points.round();
            let part = area.range().intersect(range);
            if area.watches_accesses() {
                self.disarm_part(area, part, &mut gather);
            } else {
                self.unprotect_pages(area, part, &mut gather);
            }
        }
        let counts = gather.close();
        self.note_gather(cpu, counts);
        result
    }

    /// Unregisters the areas in `range` that are registered with `watch`.
    fn end_watch(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        watch: &Watch,
    ) -> Result<(), WatchError> {
        let cpu = self.cpu();
        let ended = self.rewatch(areas, range, |area| {
            let mine = area.backing().has_watcher(Some(watch));
            mine.then_some((AreaFlags::empty(), None))
        });
        self.note_areas(cpu, areas);
        ended
    }
}
