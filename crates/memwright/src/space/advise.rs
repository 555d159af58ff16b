//! Advice (Linux 7.2 `mm/madvise.c`).

use memwright_table::sync::PausePoints;
use memwright_table::{Machine, Marks, PageRange, VirtAddr};

use super::flags::{FlagsError, Holes};
use super::{AREAS, AddressSpace, Area, Core, check};
use crate::error::AdviseError;
use crate::fault::Access;
use crate::stats::Row;
use crate::swap::{Choice, Effort};
use crate::vma::{AreaFlags, Rights};

/// What a program says of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The contents are not needed: pages go at once (`MADV_DONTNEED`).
    DontNeed,
    /// The same, for locked memory too (`MADV_DONTNEED_LOCKED`).
    DontNeedLocked,
    /// The contents are not needed when memory is short (`MADV_FREE`).
    Free,
    /// Punch a hole into the object (`MADV_REMOVE`).
    Remove,
    /// A child does not get it (`MADV_DONTFORK`).
    DontFork,
    /// A child gets it (`MADV_DOFORK`).
    DoFork,
    /// A child finds it empty (`MADV_WIPEONFORK`).
    WipeOnFork,
    /// A child finds it as it is (`MADV_KEEPONFORK`).
    KeepOnFork,
    /// Left out of core dumps (`MADV_DONTDUMP`).
    DontDump,
    /// Not left out (`MADV_DODUMP`).
    DoDump,
    /// Make pages resident, readable (`MADV_POPULATE_READ`).
    PopulateRead,
    /// Make pages resident, writable (`MADV_POPULATE_WRITE`).
    PopulateWrite,
    /// Every access is refused (`MADV_GUARD_INSTALL`).
    GuardInstall,
    /// Accesses are no longer refused (`MADV_GUARD_REMOVE`).
    GuardRemove,
    /// Pages may go out first (`MADV_COLD`).
    Cold,
    /// Pages shall go out now (`MADV_PAGEOUT`): to swap, or away if they may be dropped.
    PageOut,
    /// Huge pages are wanted (`MADV_HUGEPAGE`).
    Huge,
    /// Huge pages are not wanted (`MADV_NOHUGEPAGE`).
    NotHuge,
    /// Make huge pages of what is there now (`MADV_COLLAPSE`).
    Collapse,
    /// Pages with equal contents may be merged (`MADV_MERGEABLE`).
    Mergeable,
    /// They may not, and those that are get apart (`MADV_UNMERGEABLE`).
    Unmergeable,
    /// Pages are wanted in no particular way (`MADV_NORMAL`).
    Normal,
    /// Pages are wanted in no order (`MADV_RANDOM`).
    Random,
    /// Pages are wanted one after the other (`MADV_SEQUENTIAL`).
    Sequential,
    /// The memory will be used soon (`MADV_WILLNEED`).
    Hint,
}

/// What came of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advised {
    /// It was done.
    Done,
    /// It was noted, and changes nothing: the account lists such calls.
    AdvisedOnly,
}

impl Advice {
    /// Whether contents go by it, now or in a child (Linux 7.2 `is_discard`): what a sealed area may refuse.
    fn discards(self) -> bool {
        match self {
            Self::DontNeed
            | Self::DontNeedLocked
            | Self::Free
            | Self::Remove
            | Self::DontFork
            | Self::WipeOnFork
            | Self::GuardInstall => true,
            Self::DoFork
            | Self::KeepOnFork
            | Self::DontDump
            | Self::DoDump
            | Self::PopulateRead
            | Self::PopulateWrite
            | Self::GuardRemove
            | Self::Cold
            | Self::PageOut
            | Self::Huge
            | Self::NotHuge
            | Self::Collapse
            | Self::Mergeable
            | Self::Unmergeable
            | Self::Normal
            | Self::Random
            | Self::Sequential
            | Self::Hint => false,
        }
    }
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
    /// Takes advice on `length` bytes, rounded up to pages. Watchers are not told: see [`discard`](Self::discard).
    ///
    /// # Errors
    /// As [`AdviseError`] says.
    pub fn advise(
        &self,
        address: VirtAddr,
        length: u64,
        advice: Advice,
    ) -> Result<Advised, AdviseError> {
        let core = &*self.core;
        let mut range = check::pages(address, length).map_err(|_| AdviseError::Misaligned)?;
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

/// Locked memory stays where it is, as pages of the pool do, and how it is used does not matter.
fn refuse_locked<M: Machine>(area: &Area<M>, part: PageRange) -> Result<(), AdviseError> {
    if area
        .flags
        .intersects(AreaFlags::LOCKED | AreaFlags::HUGETLB)
    {
        return Err(AdviseError::NotApplicable(part.start.address()));
    }
    Ok(())
}

/// A sealed area keeps what a program could not overwrite either: private anonymous memory that is not writable.
/// Whatever files show may go, as it comes back (Linux 7.2 `can_madvise_modify`).
pub(super) fn check_seal<M: Machine>(
    core: &Core<M>,
    area: &Area<M>,
    part: PageRange,
    advice: Advice,
) -> Result<(), AdviseError> {
    if !area.flags.contains(AreaFlags::SEALED) {
        return Ok(());
    }
    let writable =
        area.rights.contains(Rights::WRITE) && core.check_key(area.rights, Access::WRITE).is_ok();
    let keeps = area.object().is_none() && !writable;
    if keeps && advice.discards() {
        return Err(AdviseError::Sealed(part.start.address()));
    }
    Ok(())
}

/// Whether an area takes advice that is one of its flags (Linux 7.2 `madvise_vma_behavior`).
fn check_flag<M: Machine>(
    core: &Core<M>,
    area: &Area<M>,
    part: PageRange,
    advice: Advice,
) -> Result<(), AdviseError> {
    check_seal(core, area, part, advice)?;
    let refused = match advice {
        // Only private anonymous memory can be wiped.
        Advice::WipeOnFork => area.object().is_some(),
        // Memory that may be dropped never loses these.
        Advice::KeepOnFork | Advice::DoDump => area.flags.contains(AreaFlags::DROPPABLE),
        // What never grows goes to no child again, once it was said that it does not.
        Advice::DoFork => area.flags.contains(AreaFlags::HUGETLB),
        _ => false,
    };
    if refused {
        return Err(AdviseError::NotApplicable(part.start.address()));
    }
    Ok(())
}

impl<M: Machine> Core<M> {
    /// Calls `act` for each area of `range`, with its part of it, passing over holes; the first hole is
    /// reported at the end (Linux 7.2 `madvise_walk_vmas`).
    fn for_each_area(
        &self,
        range: PageRange,
        mut act: impl FnMut(&Area<M>, PageRange) -> Result<(), AdviseError>,
    ) -> Result<(), AdviseError> {
        let areas = self.areas.read(self.cpu());
        let mut hole = None;
        let mut points = PausePoints::every(AREAS);
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

    /// How pages are wanted: no more than a note, which areas keep and show (Linux 7.2 `madvise_vma_behavior`).
    fn advise_order(&self, range: PageRange, order: AreaFlags) -> Result<Advised, AdviseError> {
        let mut areas = self.areas.write();
        let orders = AreaFlags::RANDOM | AreaFlags::SEQUENTIAL;
        let rule = |flags: AreaFlags| (flags - orders) | order;
        self.change_flags(&mut areas, range, Holes::Pass, rule)?;
        Ok(Advised::AdvisedOnly)
    }

    /// One of the two flags, in place of the other (Linux 7.2 `mm/khugepaged.c`, `hugepage_madvise`).
    fn advise_huge(&self, range: PageRange, flag: AreaFlags) -> Result<(), AdviseError> {
        let mut areas = self.areas.write();
        let both = AreaFlags::HUGE | AreaFlags::NOT_HUGE;
        let rule = |flags: AreaFlags| (flags - both) | flag;
        Ok(self.change_flags(&mut areas, range, Holes::Pass, rule)?)
    }

    /// Sets or clears a flag of the areas of `range`, up to the first that refuses the advice.
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
        // Linux changes the areas before the first that it refuses.
        let before = PageRange::new(range.start, end);
        let changed = self.change_flags(&mut areas, before, Holes::Pass, rule);
        match refusal {
            Some((_, error)) => Err(error),
            None => Ok(changed?),
        }
    }

    /// Without a place to write pages to, only those go out whose contents may be lost, and those of files that have a
    /// place of their own (Linux 7.2 `mm/vmscan.c`, `shrink_folio_list`, and `try_to_unmap_one` for `VM_DROPPABLE`).
    fn advise_page_out(&self, range: PageRange) -> Result<Advised, AdviseError> {
        let swaps = self.memory.swap().is_on();
        let mut advised = Advised::Done;
        let mut passed = range.start;
        let mut shows_objects = false;
        let result = self.for_each_area(range, |area, part| {
            refuse_locked(area, part)?;
            passed = part.end;
            if area.flags.contains(AreaFlags::DROPPABLE) {
                return self.drop_pages(area, part);
            }
            let shows_object = self.object_may_leave(area);
            shows_objects |= shows_object;
            if self.may_leave(area) && (swaps || self.memory.may_lose_pages()) {
                let mut effort = Effort::ALL;
                self.page_out(area, part, Choice::All, &mut effort);
            } else if !shows_object {
                advised = Advised::AdvisedOnly;
            }
            Ok(())
        });
        if shows_objects {
            // What objects have goes without the lock.
            let passed = PageRange::new(range.start, passed);
            let mut effort = Effort::ALL;
            self.page_out_objects(passed, Choice::All, &mut effort);
            if !swaps && effort.wanted == Effort::ALL.wanted {
                advised = Advised::AdvisedOnly;
            }
        }
        result.map(|()| advised)
    }

    /// Installs or removes guard markers. Pages under new ones go.
    fn guard(&self, range: PageRange, install: bool) -> Result<(), AdviseError> {
        let mut areas = self.areas.write();
        let cpu = self.cpu();
        let mut hole = None;
        let mut points = PausePoints::every(AREAS);
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
            if area.flags.contains(AreaFlags::HUGETLB)
                || install && area.flags.contains(AreaFlags::LOCKED)
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
