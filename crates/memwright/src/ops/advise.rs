//! Advice (Linux 7.2 `mm/madvise.c`).

use memwright_table::sync::PausePoints;
use memwright_table::{Machine, Marks, PageRange, VirtAddr};

use crate::mm::check;
use crate::mm::check_seal::check_seal;
use crate::mm::core::Core;
use crate::mm::space::{AREAS, AddressSpace, Area};
use crate::range::flags::{FlagsError, Holes};
use crate::types::advice::Advice;
use crate::types::error::AdviseError;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;

/// The result of a successful call of [`AddressSpace::advise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advised {
    /// The advice took effect. [`Advice::PageOut`] takes effect on the pages that can leave memory. As on Linux, where
    /// `madvise` returns 0, a page that cannot leave because no slot is free or the device fails is not an error.
    Done,
    /// The advice was accepted but has no effect. The personality counts calls with this result.
    AdvisedOnly,
}

impl From<FlagsError> for AdviseError {
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
    /// Applies advice to `length` bytes, rounded up to pages. Userfaultfd contexts are not notified of discarded
    /// contents: use [`discard`](Self::discard) for that.
    ///
    /// # Errors
    /// See [`AdviseError`].
    pub fn advise(
        &self,
        address: VirtAddr,
        length: u64,
        advice: Advice,
    ) -> Result<Advised, AdviseError> {
        let core = &*self.core;
        let mut range = check::pages(address, length)?;
        if range.is_empty() {
            return Ok(Advised::Done);
        }
        match advice {
            Advice::PopulateRead => core.populate_as(&mut range, false)?,
            Advice::PopulateWrite => core.populate_as(&mut range, true)?,
            Advice::GuardInstall => core.guard(range, true)?,
            Advice::GuardRemove => core.guard(range, false)?,
            Advice::DontNeed | Advice::DontNeedLocked | Advice::Free | Advice::Remove => {
                self.discard(address, length, advice, &mut |_, _| {})?;
            }
            Advice::Cold => {
                core.for_each_area(range, |area, part| {
                    refuse_locked(area, part)?;
                    core.deactivate(part);
                    Ok(())
                })?;
            }
            Advice::PageOut => return core.advise_page_out(range),
            Advice::Hint => {
                core.for_each_area(range, |_, _| Ok(()))?;
                return Ok(Advised::AdvisedOnly);
            }
            Advice::Normal => return core.advise_order(range, AreaFlags::empty()),
            Advice::Random => return core.advise_order(range, AreaFlags::RANDOM),
            Advice::Sequential => return core.advise_order(range, AreaFlags::SEQUENTIAL),
            Advice::Huge => core.advise_huge(range, AreaFlags::HUGE)?,
            Advice::NotHuge => core.advise_huge(range, AreaFlags::NOT_HUGE)?,
            Advice::Collapse => core.advise_collapse(range)?,
            Advice::Mergeable => self.advise_mergeable(range, true)?,
            Advice::Unmergeable => self.advise_mergeable(range, false)?,
            Advice::WipeOnFork => core.advise_flag(range, advice, AreaFlags::WIPEONFORK, true)?,
            Advice::DontFork => core.advise_flag(range, advice, AreaFlags::DONTFORK, true)?,
            Advice::DoFork => core.advise_flag(range, advice, AreaFlags::DONTFORK, false)?,
            Advice::KeepOnFork => core.advise_flag(range, advice, AreaFlags::WIPEONFORK, false)?,
            Advice::DontDump => core.advise_flag(range, advice, AreaFlags::DONTDUMP, true)?,
            Advice::DoDump => core.advise_flag(range, advice, AreaFlags::DONTDUMP, false)?,
        }
        Ok(Advised::Done)
    }
}

/// Returns an error if `part` of the area is locked or has hugetlb pages or device memory, which reclaim skips.
pub(super) fn refuse_locked<M: Machine>(
    area: &Area<M>,
    part: PageRange,
) -> Result<(), AdviseError> {
    if area
        .flags
        .intersects(AreaFlags::LOCKED | AreaFlags::HUGETLB | AreaFlags::PHYSICAL)
    {
        return Err(AdviseError::NotApplicable(part.start.address()));
    }
    Ok(())
}

/// Returns an error if the area does not accept `advice`, which must be advice that sets or clears a flag of the area
/// (Linux 7.2 `madvise_vma_behavior`).
fn check_flag<M: Machine>(
    core: &Core<M>,
    area: &Area<M>,
    part: PageRange,
    advice: Advice,
) -> Result<(), AdviseError> {
    check_seal(core, area, part, advice)?;
    let refused = match advice {
        // `MADV_WIPEONFORK` applies to private anonymous memory only.
        Advice::WipeOnFork => area.object().is_some(),
        // Droppable memory always has `WIPEONFORK` and `DONTDUMP`, so they cannot be cleared. Device memory always has
        // `DONTDUMP`.
        Advice::KeepOnFork => area.flags().contains(AreaFlags::DROPPABLE),
        Advice::DoDump => area
            .flags
            .intersects(AreaFlags::DROPPABLE | AreaFlags::PHYSICAL),
        // Linux returns an error for areas that cannot be expanded (`VM_DONTEXPAND`), such as hugetlb.
        Advice::DoFork => area
            .flags
            .intersects(AreaFlags::HUGETLB | AreaFlags::PHYSICAL),
        _ => false,
    };
    if refused {
        return Err(AdviseError::NotApplicable(part.start.address()));
    }
    Ok(())
}

impl<M: Machine> Core<M> {
    /// Calls `act` for each area of `range` with the part of the area that is in `range`. Skips holes. If there was a
    /// hole, returns an error for the first one, but only after all areas have been processed (Linux 7.2
    /// `madvise_walk_vmas`).
    pub(super) fn for_each_area(
        &self,
        range: PageRange,
        mut act: impl FnMut(&Area<M>, PageRange) -> Result<(), AdviseError>,
    ) -> Result<(), AdviseError> {
        let areas = self.areas.read(self.cpu());
        let mut hole = None;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        let mut next = range.start;
        for area in areas.map.overlapping(range) {
            if area.start() > next {
                hole = hole.or(Some(next));
            }
            act(area, area.range().intersect(range))?;
            next = area.end();
            points.round();
        }
        if next < range.end {
            hole = hole.or(Some(next));
        }
        match hole {
            Some(page) => Err(AdviseError::Hole(page.address())),
            None => Ok(()),
        }
    }

    /// Records `order`, the expected access pattern, in the flags of the areas. The memory manager only reports these
    /// flags (Linux 7.2 `madvise_vma_behavior`).
    fn advise_order(&self, range: PageRange, order: AreaFlags) -> Result<Advised, AdviseError> {
        let mut areas = self.areas.write();
        let orders = AreaFlags::RANDOM | AreaFlags::SEQUENTIAL;
        let rule = |flags: AreaFlags| (flags - orders) | order;
        self.change_flags(&mut areas, range, Holes::Pass, rule)?;
        Ok(Advised::AdvisedOnly)
    }

    /// Sets or clears `flag` in the areas of `range`, up to the first area that refuses the advice.
    fn advise_flag(
        &self,
        range: PageRange,
        advice: Advice,
        flag: AreaFlags,
        on: bool,
    ) -> Result<(), AdviseError> {
        let mut areas = self.areas.write();
        let refusal = areas.map.overlapping(range).find_map(|area| {
            let start = area.start().max(range.start);
            let part = PageRange::new(start, area.end());
            check_flag(self, area, part, advice)
                .err()
                .map(|error| (start, error))
        });
        let end = refusal.map_or(range.end, |(start, _)| start);
        let rule = |flags: AreaFlags| if on { flags | flag } else { flags - flag };
        // Change only the areas below the area that refuses the advice, as Linux does.
        let before = PageRange::new(range.start, end);
        let changed = self.change_flags(&mut areas, before, Holes::Pass, rule);
        match refusal {
            Some((_, error)) => Err(error),
            None => Ok(changed?),
        }
    }

    /// If `install`, unmaps the pages of `range` and installs guard markers. Otherwise removes the guard markers.
    fn guard(&self, range: PageRange, install: bool) -> Result<(), AdviseError> {
        let mut areas = self.areas.write();
        let cpu = self.cpu();
        let mut hole = None;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        let mut next = range.start;
        while next < range.end {
            points.round();
            let position = areas.map.at_or_after(next);
            let position = position.filter(|found| areas.map.get(*found).start() < range.end);
            let Some(position) = position else {
                hole = hole.or(Some(next));
                break;
            };
            let area = areas.map.get_mut(position);
            if area.start() > next {
                hole = hole.or(Some(next));
            }
            let part = area.range().intersect(range);
            if install {
                check_seal(self, area, part, Advice::GuardInstall)?;
            }
            if area
                .flags
                .intersects(AreaFlags::HUGETLB | AreaFlags::PHYSICAL)
                || install && area.flags().contains(AreaFlags::LOCKED)
            {
                return Err(AdviseError::NotApplicable(part.start.address()));
            }
            if install {
                area.flags |= AreaFlags::GUARDED;
            }
            self.guard_part(cpu, part, install)?;
            next = part.end;
        }
        match hole {
            Some(page) => Err(AdviseError::Hole(page.address())),
            None => Ok(()),
        }
    }

    fn guard_part(
        &self,
        cpu: memwright_table::CpuId,
        range: PageRange,
        install: bool,
    ) -> Result<(), AdviseError> {
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range).pausing();
        self.split_cut(&mut cursor, &mut gather, Row::HugeSplitsAdvise);
        let mut result = cursor.split_edges(&mut gather);
        if result.is_ok() {
            if install {
                cursor.remove_all(&mut gather);
                cursor.seek(range.start);
                result = cursor.mark(Marks::GUARD).map(drop);
            } else {
                cursor.unmark(Marks::GUARD);
            }
        }
        drop(cursor);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        Ok(result?)
    }
}
