//! Moving and resizing mappings (Linux 7.2 `mm/mremap.c`).

use memwright_table::{Change, CpuId, Machine, PAGE_SIZE, Page, PageRange, VirtAddr};

use super::{AddressSpace, Area, Areas, Backing, Core, Mapped, ToPopulate, cuts_hugetlb};
use crate::error::{RemapError, UnmapError};
use crate::huge::HUGE_PAGES;
use crate::stats::Row;
use crate::swap::{Window, WindowCell};
use crate::trace::Event;
use crate::uffd::{Watch, WatchEvent, WatchEvents};
use crate::vma::{AreaBin, AreaFlags, Lineage, LineageCell, Position};

/// What to move, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapRequest {
    /// Where the mapping is.
    pub old: VirtAddr,
    /// How long it is, in bytes; 0 asks for a second mapping of shared memory.
    pub old_length: u64,
    /// How long it shall be, in bytes.
    pub new_length: u64,
    /// Whether it may move (`MREMAP_MAYMOVE`).
    pub may_move: bool,
    /// Where it shall be, in place of what is there (`MREMAP_FIXED`).
    pub fixed: Option<VirtAddr>,
    /// Whether the old area stays, empty (`MREMAP_DONTUNMAP`).
    pub dont_unmap: bool,
}

/// A request whose arguments agree with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checked {
    start: Page,
    old_pages: u64,
    new_pages: u64,
    may_move: bool,
    fixed: Option<Page>,
    dont_unmap: bool,
}

impl From<UnmapError> for RemapError {
    fn from(error: UnmapError) -> Self {
        match error {
            UnmapError::NoLength | UnmapError::OutOfRange => Self::OutOfRange,
            UnmapError::Misaligned => Self::Misaligned,
            UnmapError::Sealed(address) => Self::Sealed(address),
            UnmapError::OverLimit(limit) => Self::OverLimit(limit),
            UnmapError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

impl RemapRequest {
    /// What can be said without looking at any area (Linux 7.2 `check_mremap_params`).
    fn check(&self, end: Page) -> Result<Checked, RemapError> {
        let pages = |length: u64| {
            let rounded = length.checked_next_multiple_of(PAGE_SIZE as u64);
            rounded
                .map(|bytes| bytes / PAGE_SIZE as u64)
                .ok_or(RemapError::Invalid)
        };
        if !self.old.is_aligned() {
            return Err(RemapError::Misaligned);
        }
        // An old length that wraps when it is rounded up is none.
        let (old_pages, new_pages) = (pages(self.old_length).unwrap_or(0), pages(self.new_length)?);
        if new_pages == 0 {
            return Err(RemapError::Invalid);
        }
        if new_pages > end.number() {
            return Err(RemapError::OutOfRange);
        }
        let moves = self.fixed.is_some() || self.dont_unmap;
        if moves && !self.may_move || self.dont_unmap && old_pages != new_pages {
            return Err(RemapError::Invalid);
        }
        if self.fixed.is_some_and(|fixed| !fixed.is_aligned()) {
            return Err(RemapError::Misaligned);
        }
        let start = self.old.page();
        if start.number() + old_pages > Page::USER_END.number() {
            return Err(RemapError::NoArea(self.old));
        }
        if let Some(fixed) = self.fixed {
            if fixed.page().number() + new_pages > end.number() {
                return Err(RemapError::OutOfRange);
            }
            let old = PageRange::new(start, start.add(old_pages));
            let new = PageRange::new(fixed.page(), fixed.page().add(new_pages));
            if !old.intersect(new).is_empty() {
                return Err(RemapError::Invalid);
            }
        }
        Ok(Checked {
            start,
            old_pages,
            new_pages,
            may_move: self.may_move,
            fixed: self.fixed.map(VirtAddr::page),
            dont_unmap: self.dont_unmap,
        })
    }
}

impl Checked {
    /// The request as it is meant in an area: one of huge pages of the pool is moved by whole ones, and neither grows
    /// nor stays behind (Linux 7.2 `check_prep_vma`).
    fn in_area<M: Machine>(self, area: &Area<M>) -> Result<Self, RemapError> {
        if !area.flags.contains(AreaFlags::HUGETLB) {
            return Ok(self);
        }
        if area.flags.contains(AreaFlags::SEALED) {
            return Err(RemapError::Sealed(self.start.address()));
        }
        let aligned = |page: Page| page.number() % HUGE_PAGES == 0;
        let whole = Self {
            old_pages: self.old_pages.next_multiple_of(HUGE_PAGES),
            new_pages: self.new_pages.next_multiple_of(HUGE_PAGES),
            ..self
        };
        let fits = aligned(self.start) && self.fixed.is_none_or(aligned);
        if !fits || whole.new_pages > whole.old_pages || self.dont_unmap {
            return Err(RemapError::Invalid);
        }
        Ok(whole)
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Moves or resizes a mapping; returns where it is now. Moved pages are soft-dirty.
    ///
    /// With `fixed` and equal lengths the old range may hold several areas (Linux 6.17 and later).
    ///
    /// # Errors
    /// As [`RemapError`] says. What was mapped at a fixed new place may be gone, as on Linux.
    pub fn remap(&self, request: RemapRequest) -> Result<VirtAddr, RemapError> {
        let moved = self.remap_telling(request, &mut |_, _| {})?;
        self.populate_now(moved.to_populate);
        Ok(moved.start)
    }

    /// The same, but what locked memory grew by is not resident yet. Watchers that want to know are shown to `witness` while the address space is locked: of what was at the
    /// new place, of the move, and of what is no longer at the old place (Linux 7.2 `notify_uffd`). Those of what was
    /// unmapped also where the move failed.
    ///
    /// # Errors
    /// As [`remap`](Self::remap).
    pub fn remap_telling(
        &self,
        request: RemapRequest,
        witness: &mut dyn FnMut(&Watch, WatchEvent),
    ) -> Result<Mapped, RemapError> {
        let core = &*self.core;
        let checked = match request.check(core.bounds().end) {
            Err(error @ RemapError::NoArea(_)) => {
                check_room(&core.areas.read(core.cpu()))?;
                return Err(error);
            }
            checked => checked?,
        };
        let mut bin = AreaBin::new();
        let mut areas = core.areas.write();
        check_room(&areas)?;
        let moved = core.remap(&mut areas, &checked, &mut bin);
        core.note_areas(core.cpu(), &mut areas);
        bin.notices.tell(witness);
        let to_populate = moved.map(|start| grown(&areas, start, &checked));
        drop(areas);
        drop(bin);
        let start = moved?;
        let new = PageRange::new(start, start.add(checked.new_pages));
        core.memory.trace(|| Event::Remap {
            old: PageRange::new(checked.start, checked.start.add(checked.old_pages)),
            new,
        });
        Ok(Mapped {
            start: start.address(),
            to_populate: to_populate?,
        })
    }
}

/// Checks that there may be as many more areas as any `mremap` adds. The check precedes the look at the areas, whatever the
/// request comes to (`mm/mremap.c` of Linux 7.3).
fn check_room<M: Machine>(areas: &Areas<M>) -> Result<(), RemapError> {
    /// The old and the new place may each be cut out of an area.
    const MOST_ADDED: usize = 4;
    areas.check_count(MOST_ADDED).map_err(RemapError::OverLimit)
}

/// What locked memory that begins at `start` now grew by.
fn grown<M: Machine>(areas: &Areas<M>, start: Page, request: &Checked) -> ToPopulate {
    let added = PageRange::new(start.add(request.old_pages), start.add(request.new_pages));
    let is_locked = |area: &Area<M>| area.flags.contains(AreaFlags::LOCKED);
    if request.new_pages > request.old_pages && areas.map.find(start).is_some_and(is_locked) {
        ToPopulate::new(added)
    } else {
        ToPopulate::nothing_at(start)
    }
}

impl<M: Machine> Core<M> {
    fn remap(
        &self,
        areas: &mut Areas<M>,
        request: &Checked,
        bin: &mut AreaBin<Backing<M>>,
    ) -> Result<Page, RemapError> {
        let start = request.start;
        let position = areas.map.at_or_after(start);
        let position = position.filter(|found| areas.map.get(*found).start() <= start);
        let position = position.ok_or(RemapError::NoArea(start.address()))?;
        let area = areas.map.get(position);
        let request = &request.in_area(area)?;
        let (old_pages, new_pages) = (request.old_pages, request.new_pages);
        let old = PageRange::new(start, start.add(old_pages));
        if let (true, Some(target)) = (
            old.end > area.end() && old_pages == new_pages,
            request.fixed,
        ) {
            return self.move_several(areas, request, target, bin);
        }
        if area.flags.contains(AreaFlags::SEALED) {
            return Err(RemapError::Sealed(start.address()));
        }
        if old_pages == 0 && !area.is_shared() {
            return Err(RemapError::Invalid);
        }
        let moves = request.fixed.is_some() || request.dont_unmap;
        if !moves && new_pages == old_pages {
            // Nothing to do, and nobody asks what else the range holds (`MREMAP_NO_RESIZE` of Linux 7.2).
            return Ok(start);
        }
        if new_pages < old_pages && !moves {
            // What is given up may hold other areas and holes, and so may what stays (`MREMAP_SHRINK`).
            let tail = PageRange::new(start.add(new_pages), old.end);
            self.unmap_range(areas, tail, bin)?;
            return Ok(start);
        }
        // What is given up may hold more here too, but the rest, which moves, is of one area.
        let rest = PageRange::new(start, start.add(old_pages.min(new_pages)));
        if rest.end > area.end() {
            return Err(RemapError::NoArea(area.end().address()));
        }
        if old_pages > 0 && new_pages > old_pages {
            check_growth(areas, position, new_pages - old_pages)?;
        }
        if !moves && old_pages > 0 && self.grow_in_place(areas, position, old, new_pages)? {
            return Ok(start);
        }
        if !request.may_move {
            return Err(RemapError::NoRoom);
        }
        self.move_area(areas, request, bin)
    }

    /// Extends the area over the free pages that follow it; false if there are not enough.
    fn grow_in_place(
        &self,
        areas: &mut Areas<M>,
        position: Position,
        old: PageRange,
        new_pages: u64,
    ) -> Result<bool, RemapError> {
        let area = areas.map.get(position);
        let end = old.start.add(new_pages);
        let room = match areas.map.next(position) {
            Some(next) => areas.map.get(next).start_with_guard(),
            None => self.bounds().end,
        };
        if area.end() != old.end || end > room.min(self.bounds().end) {
            return Ok(false);
        }
        let (rights, flags) = (area.rights, area.flags);
        let more = new_pages - old.len();
        if flags.contains(AreaFlags::ACCOUNTED) {
            self.memory
                .promise(more)
                .map_err(|_| RemapError::Overcommit)?;
        }
        areas.map.grow_up(position, end);
        // Not with the one before, which may have become alike meanwhile (`vma_merge_extend`).
        areas.map.merge_with_next(position);
        areas.count_in(rights, flags, more);
        Ok(true)
    }

    /// Moves one area, or a part of it, to a new place.
    fn move_area(
        &self,
        areas: &mut Areas<M>,
        request: &Checked,
        bin: &mut AreaBin<Backing<M>>,
    ) -> Result<Page, RemapError> {
        let Checked {
            start, new_pages, ..
        } = *request;
        let cpu = self.cpu();
        let target = match request.fixed {
            Some(target) if target < self.bounds().start && !areas.limits.may_map_low => {
                return Err(RemapError::TooLow);
            }
            Some(target) => {
                let range = PageRange::new(target, target.add(new_pages));
                self.unmap_range(areas, range, bin)?;
                target
            }
            None => {
                let below = PageRange::new(self.bounds().start, self.layout.mmap_top.page());
                areas
                    .map
                    .highest_room(new_pages, below)
                    .ok_or(RemapError::NoRoom)?
            }
        };
        // Watchers hear of what was there before they hear of the move, and of the rest afterwards.
        let before = bin.notices.len();
        // A shrinking move gives up the tail once its target is free (Linux 7.2 `mm/mremap.c`, `mremap_to`).
        let old_pages = request.old_pages.min(new_pages);
        if old_pages < request.old_pages {
            let tail = PageRange::new(start.add(old_pages), start.add(request.old_pages));
            self.unmap_range(areas, tail, bin)?;
        }
        let old = PageRange::new(start, start.add(old_pages));
        let new = PageRange::new(target, target.add(new_pages));
        let keeps_old = request.dont_unmap || old_pages == 0;
        let promised = self.prepare_move(areas, old, new, keeps_old, bin)?;
        if is_hugetlb(areas, start) {
            self.clear_way(new);
        }
        let keeps_watch = areas.map.find(start).is_some_and(follows);
        if let Err(error) = self.move_pages(cpu, (old, target), keeps_watch) {
            self.memory.take_back(promised);
            return Err(error);
        }
        let watcher = areas
            .map
            .find(start)
            .and_then(|area| area.backing().watcher());
        let moved = WatchEvent::Moved {
            from: start,
            to: target,
            pages: old_pages,
        };
        bin.notices.add_at(before, watcher, moved);
        self.settle(areas, old, new, keeps_old, bin);
        Ok(target)
    }

    /// Everything that can fail but the tables: limits, reservations, the promise. Returns how many pages
    /// were promised.
    fn prepare_move(
        &self,
        areas: &mut Areas<M>,
        old: PageRange,
        new: PageRange,
        keeps_old: bool,
        bin: &mut AreaBin<Backing<M>>,
    ) -> Result<u64, RemapError> {
        let position = areas
            .map
            .at_or_after(old.start)
            .expect("the area was found");
        let (rights, flags) = {
            let area = areas.map.get(position);
            (area.rights, area.flags)
        };
        if keeps_old {
            areas
                .check_growth(rights, flags, new.len(), 0)
                .map_err(RemapError::OverLimit)?;
        }
        areas.map.reserve(4)?;
        bin.reserve(2)?;
        if !flags.contains(AreaFlags::ACCOUNTED) {
            return Ok(0);
        }
        self.memory
            .promise(new.len())
            .map_err(|_| RemapError::Overcommit)?;
        Ok(new.len())
    }

    /// Moves the entries of `old`, all or none.
    fn move_pages(
        &self,
        cpu: CpuId,
        (old, target): (PageRange, Page),
        keeps_watch: bool,
    ) -> Result<(), RemapError> {
        if old.is_empty() {
            return Ok(());
        }
        let mut gather = self.gather();
        let moved = self
            .table
            .move_entries(old, target, keeps_watch, &mut gather);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        let split = counts.of(Change::Resized);
        self.memory.count_on(cpu, Row::HugeSplitsRemap, split);
        moved?;
        Ok(())
    }

    /// Makes the new area and takes the old one away, or empties it.
    fn settle(
        &self,
        areas: &mut Areas<M>,
        old: PageRange,
        new: PageRange,
        keeps_old: bool,
        bin: &mut AreaBin<Backing<M>>,
    ) {
        let position = areas
            .map
            .at_or_after(old.start)
            .expect("the area was found");
        let area = areas.map.get(position);
        // Untouched anonymous memory has no identity yet: it is as if mapped at the new place.
        let fresh = area.object().is_none() && !area.has_faulted();
        let (rights, flags, backing) = (area.rights, area.flags, area.backing().clone());
        let loses_watch = flags.intersects(AreaFlags::UFFD) && !follows(area);
        let whole = area.range();
        // Linux puts the new area beside the old one before it takes this away: the two are one for a moment.
        let joins_rest = fresh && (new.end == whole.start || new.start == whole.end);
        let moved: Area<M> = Area {
            range: new,
            offset: if fresh {
                new.start.number()
            } else {
                area.offset_of(old.start)
            },
            flags,
            rights,
            max_rights: area.max_rights,
            placement: area.placement,
            lineage: LineageCell::new(area.lineage()),
            window: WindowCell::new(Window::NONE),
            backing,
        };
        if flags.contains(AreaFlags::HUGETLB) {
            // What is reserved moves as well.
            areas.map.split_at(old.start);
            areas.map.split_at(old.end);
            if let Some(position) = areas.map.at_or_after(old.start) {
                let left = areas.map.get_mut(position);
                left.backing = left.backing.unreserved();
            }
        }
        if !keeps_old {
            if let Some(area) = areas
                .map
                .find(old.start)
                .filter(|_| !(loses_watch && joins_rest))
            {
                let gone = WatchEvent::Unmapped(old);
                bin.notices.add(area.backing().watcher(), gone);
            }
            self.unmap_areas(self.cpu(), areas, old, bin);
        }
        areas.count_in(rights, flags, new.len());
        let position = areas.map.insert(moved);
        let position = areas.map.merge_around(position);
        if loses_watch {
            // What it has become one with loses its watcher too (`copy_vma`, then `mremap_userfaultfd_prep`).
            unwatch(areas.map.get_mut(position));
            let mut next = whole.start;
            while let (true, Some(position)) = (joins_rest, areas.map.at_or_after(next)) {
                let rest = areas.map.get_mut(position);
                if rest.start() >= whole.end {
                    break;
                }
                unwatch(rest);
                next = rest.end();
            }
        }
        if keeps_old && !old.is_empty() {
            leave_behind(areas, old);
        }
    }

    /// Moves all areas of the old range, with the holes between them, to the fixed new place.
    fn move_several(
        &self,
        areas: &mut Areas<M>,
        request: &Checked,
        target: Page,
        bin: &mut AreaBin<Backing<M>>,
    ) -> Result<Page, RemapError> {
        let old = PageRange::new(request.start, request.start.add(request.old_pages));
        let mut next = old.start;
        // The last area may reach beyond the old range, and stay there whole (`MREMAP_DONTUNMAP`).
        while let Some(position) = areas.map.at_or_after(next).filter(|_| next < old.end) {
            let rest = PageRange::new(next, old.end);
            let part = areas.map.get(position).range().intersect(rest);
            if part.is_empty() {
                break;
            }
            let area = areas.map.get(position);
            // What is watched moves alone (`vma_multi_allowed`), and that is asked first.
            if area.flags.intersects(AreaFlags::UFFD) && part != old {
                return Err(RemapError::NoArea(part.start.address()));
            }
            if area.flags.contains(AreaFlags::SEALED) {
                return Err(RemapError::Sealed(part.start.address()));
            }
            if cuts_hugetlb(area.flags, part) {
                return Err(RemapError::Invalid);
            }
            let ahead = part.start.number() - old.start.number();
            let piece = Checked {
                start: part.start,
                old_pages: part.len(),
                new_pages: part.len(),
                fixed: Some(target.add(ahead)),
                ..*request
            }
            .in_area(area)?;
            self.move_area(areas, &piece, bin)?;
            next = part.end;
        }
        Ok(target)
    }
}

/// Whether a watcher of the area is told where it goes, and goes on watching it there (`UFFD_FEATURE_EVENT_REMAP`).
fn follows<M: Machine>(area: &Area<M>) -> bool {
    let watcher = area.backing().watcher();
    watcher.is_some_and(|watch| watch.events.contains(WatchEvents::REMAP))
}

/// Nobody is told of the area's faults any more.
fn unwatch<M: Machine>(area: &mut Area<M>) {
    area.flags = area.flags.unwatched();
    area.backing = area.backing.watched_by(None);
}

/// Whether the area at `page` has huge pages of the pool.
fn is_hugetlb<M: Machine>(areas: &Areas<M>, page: Page) -> bool {
    let area = areas.map.find(page);
    area.is_some_and(|area| area.flags.contains(AreaFlags::HUGETLB))
}

/// Whether `more` pages of the area keep to the limits (Linux 7.2 `check_prep_vma`).
fn check_growth<M: Machine>(
    areas: &Areas<M>,
    position: Position,
    more: u64,
) -> Result<(), RemapError> {
    let area = areas.map.get(position);
    if area.flags.contains(AreaFlags::LOCKED) {
        areas.check_locked(more).map_err(RemapError::OverLimit)?;
    }
    areas
        .check_growth(area.rights, area.flags, more, 0)
        .map_err(RemapError::OverLimit)
}

/// What `MREMAP_DONTUNMAP` leaves behind: the whole area is no longer locked, though its pages still count as such, and
/// has no lineage if all of it was moved (Linux 7.2 `dontunmap_complete`). Where the new area became one with it, that
/// holds for both.
fn leave_behind<M: Machine>(areas: &mut Areas<M>, old: PageRange) {
    let position = areas.map.at_or_after(old.start);
    let area = areas.map.get_mut(position.expect("the area was found"));
    if area.range() == old {
        area.lineage.set(Lineage::NONE);
    }
    let pages = area.pages();
    let was_locked = area.flags.contains(AreaFlags::LOCKED);
    area.flags -= AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
    if was_locked {
        areas.locked_before += pages;
    }
}
