//! Registering memory with a userfaultfd (Linux 7.3 `mm/userfaultfd.c`, `userfaultfd_register`).

use memwright_table::sync::PausePoints;
use memwright_table::{Machine, PageRange, VirtAddr};

use crate::mm::areas::{Areas, Backing, cuts_hugetlb};
use crate::mm::core::Core;
use crate::mm::space::{AREAS, Area};
use crate::mm::theme::Uffd;
use crate::types::error::WatchError;
use crate::types::policy::Track;
use crate::types::rights::Rights;
use crate::types::stats::Row;
use crate::types::uffd::{Watch, WatchModes};
use crate::uffd::{can_watch, flags_of, pages};
use crate::vma::area::AreaFlags;

impl<M: Machine> Uffd<'_, M> {
    /// Registers the areas of the `length` bytes from `address` on with `watch`, for faults of `modes`.
    ///
    /// # Errors
    /// See [`WatchError`]. If a limit is reached or memory runs out, the areas that are already registered stay
    /// registered.
    pub fn watch(
        &self,
        address: VirtAddr,
        length: u64,
        watch: &Watch,
        modes: WatchModes,
    ) -> Result<(), WatchError> {
        let core = &*self.space.core;
        let range = pages(core, address, length)?;
        let mut areas = core.areas.write();
        if areas.map.overlapping(range).next().is_none() {
            return Err(WatchError::NoArea);
        }
        let accesses = modes.contains(WatchModes::READ_WRITE_PROTECT);
        if accesses && modes.contains(WatchModes::WRITE_PROTECT) {
            return Err(WatchError::Modes);
        }
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.overlapping(range) {
            points.round();
            check_area(area, watch, modes)?;
            if cuts_hugetlb(area.flags(), area.range().intersect(range)) {
                return Err(WatchError::NotApplicable(area.start().address()));
            }
        }
        core.note_watched();
        let by_dirty = core.memory.policy().track() == Track::DirtyBit;
        let result = core.rewatch(&mut areas, range, |area| {
            let flags = flags_of(watch, modes, area.is_shared(), by_dirty);
            // An area that is already registered with `watch` for all of `modes` keeps its modes. Otherwise `modes`
            // replaces the area's present modes.
            let more = !area.backing().has_watcher(Some(watch)) || !area.flags().contains(flags);
            more.then(|| (flags, Some(watch.clone())))
        });
        core.note_areas(core.cpu(), &mut areas);
        result
    }
}

fn check_area<M: Machine>(
    area: &Area<M>,
    watch: &Watch,
    modes: WatchModes,
) -> Result<(), WatchError> {
    let accesses = modes.contains(WatchModes::READ_WRITE_PROTECT);
    if !can_watch(area, modes, watch.asynchronous) || accesses && area.rights().is_none() {
        return Err(WatchError::NotApplicable(area.start().address()));
    }
    // Memory that can never become writable cannot be registered, because it cannot be filled.
    if !area.max_rights().contains(Rights::WRITE) {
        return Err(WatchError::NotWritable);
    }
    let backing = area.backing();
    let free = backing.has_watcher(None) || backing.has_watcher(Some(watch));
    if free && !drops_protection(area.flags(), modes) {
        Ok(())
    } else {
        Err(WatchError::Busy)
    }
}

/// Returns whether a registration for faults of `modes` would remove a protecting mode from an area with these flags.
/// If it did, pages of the area would stay protected, and no mode would handle their faults. Such an area must be
/// unregistered first.
fn drops_protection(flags: AreaFlags, modes: WatchModes) -> bool {
    let drops = |flag, mode| flags.contains(flag) && !modes.contains(mode);
    drops(AreaFlags::UFFD_WP, WatchModes::WRITE_PROTECT)
        || drops(AreaFlags::UFFD_RWP, WatchModes::READ_WRITE_PROTECT)
}

impl<M: Machine> Core<M> {
    /// Calls `rule` for each area in `range`. If `rule` returns userfaultfd flags and a context, sets these for the
    /// part of the area that is in `range`. Splits and merges areas as needed.
    pub(crate) fn rewatch(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        mut rule: impl FnMut(&Area<M>) -> Option<(AreaFlags, Option<Watch>)>,
    ) -> Result<(), WatchError> {
        let mut start = range.start;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        while let Some(position) = areas.map.at_or_after(start) {
            let area = areas.map.get(position);
            let whole = area.range();
            let part = whole.intersect(PageRange::new(start, range.end));
            if part.is_empty() {
                break;
            }
            start = part.end;
            points.round();
            let Some((uffd, watch)) = rule(area) else {
                continue;
            };
            let flags = (area.flags() - AreaFlags::UFFD) | uffd;
            let same = area.backing().has_watcher(watch.as_ref());
            if same && flags == area.flags() {
                continue;
            }
            let before = areas.map.previous(position);
            let before = before.map(|at| areas.map.get(at).backing());
            let models = before.into_iter().chain([area.backing()]);
            let tag = Backing::tag_with(models, watch.as_ref(), area.backing().name())?;
            let mut position = position;
            if part != whole {
                self.split_at_edges(part, Row::HugeSplitsAdvise);
                position = areas.cut(position, whole, part)?;
            }
            let area = areas.map.get_mut(position);
            area.backing.set_tag(tag);
            area.flags = flags;
            areas.map.merge_around(position);
        }
        Ok(())
    }
}
