//! Moving and resizing mappings (Linux 7.3 `mm/mremap.c`).

use memwright_table::{Change, CpuId, Machine, MoveRule, PAGE_SIZE, Page, PageRange, VirtAddr};

use crate::mm::areas::{Areas, Backing, cuts_hugetlb};
use crate::mm::core::Core;
use crate::mm::space::{AddressSpace, Area};
use crate::ops::populate::{Mapped, ToPopulate};
use crate::types::error::{RemapError, UnmapError};
use crate::types::huge::HUGE_PAGES;
use crate::types::stats::Row;
use crate::types::swap_window::{Window, WindowCell};
use crate::types::trace::Event;
use crate::types::uffd::{Watch, WatchEvent, WatchEvents};
use crate::vma::anon_vma::{AnonVma, AnonVmaCell};
use crate::vma::area::AreaFlags;
use crate::vma::bin::AreaBin;
use crate::vma::map::Position;

/// The arguments of `mremap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapRequest {
    /// The address of the old range.
    pub old: VirtAddr,
    /// The length of the old range, in bytes; 0 requests a second mapping of shared memory.
    pub old_length: u64,
    /// The length of the new range, in bytes.
    pub new_length: u64,
    /// Whether the mapping is allowed to move (`MREMAP_MAYMOVE`).
    pub may_move: bool,
    /// The address of the new range, replacing existing mappings (`MREMAP_FIXED`).
    pub fixed: Option<VirtAddr>,
    /// Whether the old area stays mapped, without pages (`MREMAP_DONTUNMAP`).
    pub dont_unmap: bool,
}

/// A request that has passed the checks of [`RemapRequest::check`].
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
    /// Performs the checks that do not depend on the area at `old` (Linux 7.3 `check_mremap_params`).
    fn check(&self, end: Page) -> Result<Checked, RemapError> {
        let pages = |length: u64| {
            let rounded = length.checked_next_multiple_of(PAGE_SIZE as u64);
            rounded
                .map(|bytes| bytes / PAGE_SIZE as u64)
                .ok_or(RemapError::NoLength)
        };
        if !self.old.is_aligned() {
            return Err(RemapError::Misaligned);
        }
        // An old length that wraps around when rounded up counts as 0.
        let (old_pages, new_pages) = (pages(self.old_length).unwrap_or(0), pages(self.new_length)?);
        if new_pages == 0 {
            return Err(RemapError::NoLength);
        }
        if new_pages > end.number() {
            return Err(RemapError::OutOfRange);
        }
        let moves = self.fixed.is_some() || self.dont_unmap;
        if moves && !self.may_move || self.dont_unmap && old_pages != new_pages {
            return Err(RemapError::Flags);
        }
        if self.fixed.is_some_and(|fixed| !fixed.is_aligned()) {
            return Err(RemapError::Misaligned);
        }
        let start = self.old.page();
        if start.number() + old_pages > end.number() {
            return Err(RemapError::NoArea(self.old));
        }
        if let Some(fixed) = self.fixed {
            if fixed.page().number() + new_pages > end.number() {
                return Err(RemapError::OutOfRange);
            }
            let old = PageRange::new(start, start.add(old_pages));
            let new = PageRange::new(fixed.page(), fixed.page().add(new_pages));
            if !old.intersect(new).is_empty() {
                return Err(RemapError::Overlap);
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

/// The flags of areas for which a request is checked further.
const SPECIAL: AreaFlags = AreaFlags::HUGETLB.union(AreaFlags::PHYSICAL);

impl Checked {
    /// Returns the request adapted to `area`, which has one of the flags [`SPECIAL`]. The range of a hugetlb area is
    /// rounded up to huge pages. A request to grow the area or to keep it mapped is refused, for hugetlb areas and for
    /// device memory (Linux 7.3 `check_prep_vma`).
    #[cold]
    #[inline(never)]
    fn in_special_area<M: Machine>(self, area: &Area<M>) -> Result<Self, RemapError> {
        if area.flags().contains(AreaFlags::SEALED) {
            return Err(RemapError::Sealed(self.start.address()));
        }
        if area.flags().contains(AreaFlags::PHYSICAL) {
            if self.dont_unmap {
                return Err(RemapError::NotApplicable(self.start.address()));
            }
            // A second mapping (`old_pages` is 0) counts as growth, too.
            if self.new_pages > self.old_pages {
                return Err(RemapError::NoArea(self.start.address()));
            }
            return Ok(self);
        }
        let aligned = |page: Page| page.number() % HUGE_PAGES == 0;
        let whole = Self {
            old_pages: self.old_pages.next_multiple_of(HUGE_PAGES),
            new_pages: self.new_pages.next_multiple_of(HUGE_PAGES),
            ..self
        };
        let fits = aligned(self.start) && self.fixed.is_none_or(aligned);
        if !fits || whole.new_pages > whole.old_pages || self.dont_unmap {
            return Err(RemapError::NotApplicable(self.start.address()));
        }
        Ok(whole)
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Moves or resizes a mapping and returns its new address. Moved pages become soft-dirty.
    ///
    /// With `fixed` and equal lengths, the old range can span several areas (Linux 6.17 and later).
    ///
    /// # Errors
    /// See [`RemapError`]. On error, mappings at the address `fixed` can already be unmapped, as on Linux.
    pub fn remap(&self, request: RemapRequest) -> Result<VirtAddr, RemapError> {
        let moved = self.remap_telling(request, &mut |_, _| {})?;
        self.residency().populate_now(moved.to_populate);
        Ok(moved.start)
    }

    /// Like [`remap`](Self::remap), but if locked memory grows, leaves it to the caller to populate the added pages.
    /// Calls `witness`, with the address space locked, for each event that a userfaultfd context receives: the
    /// unmapping of areas at the new range, the move, and the unmapping at the old range (Linux 7.3 `notify_uffd`). The
    /// unmap events are sent even if the move fails.
    ///
    /// # Errors
    /// See [`remap`](Self::remap).
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

/// Checks that the area limit leaves room for the maximum number of areas that an `mremap` call can add. The check
/// precedes the lookup of the area and does not depend on the request (`mm/mremap.c` of Linux 7.3).
fn check_room<M: Machine>(areas: &Areas<M>) -> Result<(), RemapError> {
    /// The old and the new range can each be in the middle of an area. To cut a range out of the middle adds two areas.
    const MOST_ADDED: usize = 4;
    areas.check_count(MOST_ADDED).map_err(RemapError::OverLimit)
}

/// Returns the range by which the locked mapping that now begins at `start` has grown. Returns an empty range if the
/// mapping is not locked.
fn grown<M: Machine>(areas: &Areas<M>, start: Page, request: &Checked) -> ToPopulate {
    let added = PageRange::new(start.add(request.old_pages), start.add(request.new_pages));
    let is_locked = |area: &Area<M>| area.flags().contains(AreaFlags::LOCKED);
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
        let adapted;
        let request = if area.flags().intersects(SPECIAL) {
            adapted = request.in_special_area(area)?;
            &adapted
        } else {
            request
        };
        let (old_pages, new_pages) = (request.old_pages, request.new_pages);
        let old = PageRange::new(start, start.add(old_pages));
        if let (true, Some(target)) = (
            old.end > area.end() && old_pages == new_pages,
            request.fixed,
        ) {
            return self.move_several(areas, request, target, bin);
        }
        if area.flags().contains(AreaFlags::SEALED) {
            return Err(RemapError::Sealed(start.address()));
        }
        if old_pages == 0 && !area.is_shared() {
            return Err(RemapError::NotApplicable(start.address()));
        }
        let moves = request.fixed.is_some() || request.dont_unmap;
        if !moves && new_pages == old_pages {
            // The length does not change, and pages beyond the first area are not checked (`MREMAP_NO_RESIZE` of Linux
            // 7.3).
            return Ok(start);
        }
        if new_pages < old_pages && !moves {
            // Both the tail to unmap and the part that remains can span several areas and holes (`MREMAP_SHRINK`).
            let tail = PageRange::new(start.add(new_pages), old.end);
            self.unmap_range(areas, tail, bin)?;
            return Ok(start);
        }
        // Here too, the tail to unmap can span several areas. But the part that moves must be in one area.
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

    /// Extends the mapping `old`, a part of the area at `position`, in place to `new_pages` pages. Returns false if the
    /// area does not end with `old`, or if too few free pages follow it.
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
        // Merge only with the next area. Linux does not merge with the previous area here, even if it is compatible by
        // now (`vma_merge_extend`).
        areas.map.merge_with_next(position);
        areas.count_in(rights, flags, more);
        Ok(true)
    }

    /// Moves one area, or a part of it, to the fixed new address or to a free range. Returns the new start.
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
                place_for(areas, new_pages, below, start).ok_or(RemapError::NoRoom)?
            }
        };
        // The unmap events for the new range precede the move event. The unmap events for the old range follow it.
        let before = bin.notices.len();
        // A shrinking move unmaps the tail after it has unmapped the target range (Linux 7.3 `mm/mremap.c`,
        // `mremap_to`).
        let old_pages = request.old_pages.min(new_pages);
        if old_pages < request.old_pages {
            let tail = PageRange::new(start.add(old_pages), start.add(request.old_pages));
            self.unmap_range(areas, tail, bin)?;
        }
        let old = PageRange::new(start, start.add(old_pages));
        let new = PageRange::new(target, target.add(new_pages));
        let keeps_old = request.dont_unmap || old_pages == 0;
        let (promised, backing) = self.prepare_move(areas, old, new, keeps_old, bin)?;
        if has_huge_entries(areas, start) {
            self.clear_way(new);
        }
        let rule = areas.map.find(start).map_or(MoveRule::PLAIN, move_rule);
        if let Err(error) = self.move_pages(cpu, (old, target), rule, keeps_old) {
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
        self.settle(areas, (old, new), backing, keeps_old, bin);
        Ok(target)
    }

    /// Performs every step of a move that can fail, except for moving the entries: checks the limits, reserves memory
    /// and accounts the new range. Returns the number of pages accounted, and the backing of the new area.
    fn prepare_move(
        &self,
        areas: &mut Areas<M>,
        old: PageRange,
        new: PageRange,
        keeps_old: bool,
        bin: &mut AreaBin<Backing<M>>,
    ) -> Result<(u64, Backing<M>), RemapError> {
        let position = areas
            .map
            .at_or_after(old.start)
            .expect("the area was found");
        let area = areas.map.get(position);
        let (rights, flags) = (area.rights, area.flags);
        if keeps_old {
            areas
                .check_growth(rights, flags, new.len(), 0)
                .map_err(RemapError::OverLimit)?;
        }
        let index = area.offset_of(old.start);
        let span = index..index + new.len();
        let backing = area.backing().elsewhere(span, new.start)?;
        areas.note_move(old, new.start)?;
        areas.map.reserve(4)?;
        bin.reserve(2)?;
        if !flags.contains(AreaFlags::ACCOUNTED) {
            return Ok((0, backing));
        }
        self.memory
            .promise(new.len())
            .map_err(|_| RemapError::Overcommit)?;
        Ok((new.len(), backing))
    }

    /// Moves the entries of `old` to `target`: all of them, or none on error. Unless `keeps_old` is set, also frees the
    /// page tables that become empty. A single flush covers the moved entries and the freed tables.
    fn move_pages(
        &self,
        cpu: CpuId,
        (old, target): (PageRange, Page),
        rule: MoveRule,
        keeps_old: bool,
    ) -> Result<(), RemapError> {
        if old.is_empty() {
            return Ok(());
        }
        let mut gather = self.gather();
        let moved = self.table.move_entries(old, target, rule, &mut gather);
        if moved.is_ok() && !keeps_old {
            // Another operation may have removed pages in `old` without having flushed yet (rule: see-pending-flushes).
            gather.rely_on_pending();
            self.table.free_tables(old, &mut gather);
        }
        let counts = gather.close();
        self.note_gather(cpu, counts);
        let split = counts.of(Change::Resized);
        self.memory.count_on(cpu, Row::HugeSplitsRemap, split);
        moved?;
        Ok(())
    }

    /// Creates the new area with `backing`, after the entries of the old range have been moved. If `keeps_old` is set,
    /// the areas of the old range stay mapped without pages. Otherwise they are removed.
    fn settle(
        &self,
        areas: &mut Areas<M>,
        (old, new): (PageRange, PageRange),
        backing: Backing<M>,
        keeps_old: bool,
        bin: &mut AreaBin<Backing<M>>,
    ) {
        let position = areas
            .map
            .at_or_after(old.start)
            .expect("the area was found");
        let area = areas.map.get(position);
        // Anonymous memory without pages gets a new offset, as if it were mapped at the new address.
        let fresh = area.object().is_none() && !area.has_faulted();
        let (rights, flags) = (area.rights, area.flags);
        let loses_watch = flags.intersects(AreaFlags::UFFD) && !follows(area);
        let mut moved: Area<M> = Area {
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
            anon_vma: AnonVmaCell::new(area.anon_vma().moved(old.start, new.start)),
            window: WindowCell::new(Window::NONE),
            backing,
        };
        if flags.contains(AreaFlags::HUGETLB) {
            // The reservation moves to the new area: mark the old area as one without a reservation.
            areas.map.split_at(old.start);
            areas.map.split_at(old.end);
            if let Some(position) = areas.map.at_or_after(old.start) {
                let left = areas.map.get_mut(position);
                left.backing = left.backing.unreserved();
            }
        }
        if keeps_old {
            leave_behind(areas, old);
        } else {
            if let Some(area) = areas.map.find(old.start) {
                let gone = WatchEvent::Unmapped(old);
                bin.notices.add(area.backing().watcher(), gone);
            }
            self.take_areas(areas, old, bin);
        }
        areas.count_in(rights, flags, new.len());
        if loses_watch {
            // An area that loses its userfaultfd registration is not merged with its neighbours
            // (`vma_merge_copied_range`).
            moved.flags -= AreaFlags::UFFD;
            moved.backing.remove_watcher();
            let position = areas.map.insert(moved);
            if flags.contains(AreaFlags::UFFD_RWP) {
                self.open_copies(areas.map.get(position), new);
            }
        } else {
            let position = areas.map.insert(moved);
            merge_moved(areas, position, old);
        }
    }

    /// Moves all areas of the old range to the fixed new address, and preserves the holes between them.
    fn move_several(
        &self,
        areas: &mut Areas<M>,
        request: &Checked,
        target: Page,
        bin: &mut AreaBin<Backing<M>>,
    ) -> Result<Page, RemapError> {
        let old = PageRange::new(request.start, request.start.add(request.old_pages));
        let mut next = old.start;
        // With `MREMAP_DONTUNMAP` the old areas are not split: the last one can extend beyond the old range.
        while let Some(position) = areas.map.at_or_after(next).filter(|_| next < old.end) {
            let rest = PageRange::new(next, old.end);
            let part = areas.map.get(position).range().intersect(rest);
            if part.is_empty() {
                break;
            }
            let area = areas.map.get(position);
            // An area that is registered with a userfaultfd must be the only area in the range. Linux makes this check
            // before all others of the area (`vma_multi_allowed`).
            if area.flags().intersects(AreaFlags::UFFD) && part != old {
                return Err(RemapError::NoArea(part.start.address()));
            }
            if area.flags().contains(AreaFlags::SEALED) {
                return Err(RemapError::Sealed(part.start.address()));
            }
            if cuts_hugetlb(area.flags, part) {
                return Err(RemapError::NotApplicable(part.start.address()));
            }
            let ahead = part.start.number() - old.start.number();
            let mut piece = Checked {
                start: part.start,
                old_pages: part.len(),
                new_pages: part.len(),
                fixed: Some(target.add(ahead)),
                ..*request
            };
            if area.flags().intersects(SPECIAL) {
                piece = piece.in_special_area(area)?;
            }
            self.move_area(areas, &piece, bin)?;
            next = part.end;
        }
        Ok(target)
    }
}

/// Returns whether the userfaultfd context of the area receives move events (`UFFD_FEATURE_EVENT_REMAP`). If it does,
/// the moved area stays registered.
fn follows<M: Machine>(area: &Area<M>) -> bool {
    let watcher = area.backing().watcher();
    watcher.is_some_and(|watch| watch.events.contains(WatchEvents::REMAP))
}

/// Returns how the entries of an area move. Complete page tables can move only if the move changes no entry. This
/// requires that the area is soft-dirty, so that its entries need no soft-dirty bits, and that no entry loses its
/// uffd-wp bit (Linux 7.3 `mm/mremap.c`, `move_normal_pmd`).
fn move_rule<M: Machine>(area: &Area<M>) -> MoveRule {
    let keep_uffd_wp = follows(area);
    MoveRule {
        keep_uffd_wp,
        whole_tables: area.flags().contains(AreaFlags::SOFT_DIRTY)
            && (keep_uffd_wp || !area.flags().intersects(AreaFlags::UFFD)),
    }
}

/// Returns the start of a free range of `pages` pages inside `bounds`, to which the pages from `old` on can move. If
/// these pages can cover a complete page table, the start has the same offset in its page table as `old`, so that
/// complete tables can move.
fn place_for<M: Machine>(
    areas: &mut Areas<M>,
    pages: u64,
    bounds: PageRange,
    old: Page,
) -> Option<Page> {
    if pages >= HUGE_PAGES {
        let room = areas.map.highest_room(pages + HUGE_PAGES - 1, bounds);
        if let Some(room) = room {
            let last = room.number() + HUGE_PAGES - 1;
            let above = last.wrapping_sub(old.number()) % HUGE_PAGES;
            return Some(Page::new(last - above));
        }
    }
    areas.map.highest_room(pages, bounds)
}

/// Returns whether the area at `page` can have huge entries, for which there must be no page tables at the area's new
/// place: hugetlb pages, which are never split, or device memory.
fn has_huge_entries<M: Machine>(areas: &Areas<M>, page: Page) -> bool {
    let area = areas.map.find(page);
    area.is_some_and(|area| area.flags().intersects(SPECIAL))
}

/// Checks whether the limits allow the area at `position` to grow by `more` pages (Linux 7.3 `check_prep_vma`).
fn check_growth<M: Machine>(
    areas: &Areas<M>,
    position: Position,
    more: u64,
) -> Result<(), RemapError> {
    let area = areas.map.get(position);
    if area.flags().contains(AreaFlags::LOCKED) {
        areas.check_locked(more).map_err(RemapError::OverLimit)?;
    }
    areas
        .check_growth(area.rights, area.flags, more, 0)
        .map_err(RemapError::OverLimit)
}

/// Updates the area that `MREMAP_DONTUNMAP` leaves mapped at `old`. If the area is locked, splits off the part that was
/// moved and unlocks it. If the remaining area, or the part split off, is exactly `old`, it loses its anon_vma
/// (`prep_move_vma`, `dontunmap_complete`).
fn leave_behind<M: Machine>(areas: &mut Areas<M>, old: PageRange) {
    let is_locked = |area: &Area<M>| area.flags().contains(AreaFlags::LOCKED);
    let locked = areas.map.find(old.start).is_some_and(is_locked);
    if old.is_empty() {
        return;
    }
    if locked {
        areas.map.split_at(old.start);
        areas.map.split_at(old.end);
        areas.locked -= old.len();
    }
    let position = areas.map.at_or_after(old.start);
    let area = areas.map.get_mut(position.expect("the area was found"));
    if area.range() == old {
        area.anon_vma.set(AnonVma::NONE);
    }
    area.flags -= AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
}

/// Merges the area at `position`, which was moved from `old`, with its neighbours, but not with the area that remains
/// at `old` (Linux 7.3 `mm/vma.c`, `copy_vma`).
fn merge_moved<M: Machine>(areas: &mut Areas<M>, position: Position, old: PageRange) {
    let map = &mut areas.map;
    let is_source = |at: &Position| map.get(*at).range().contains(old.start);
    let (previous, next) = (map.previous(position), map.next(position));
    if previous.as_ref().is_some_and(is_source) {
        map.merge_with_next(position);
    } else if next.as_ref().is_some_and(is_source) {
        if let Some(previous) = previous {
            map.merge_with_next(previous);
        }
    } else {
        map.merge_around(position);
    }
}
