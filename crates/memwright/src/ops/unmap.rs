//! Unmapping (Linux 7.2 `mm/vma.c`, `do_vmi_munmap`).

use memwright_table::sync::PausePoints;
use memwright_table::{CpuId, Machine, OutOfFrames, PageRange, VirtAddr};

use crate::mm::areas::{Areas, Backing, cuts_hugetlb};
use crate::mm::check::{self, RangeError};
use crate::mm::core::Core;
use crate::mm::space::{AREAS, AddressSpace};
use crate::types::error::{Limit, UnmapError};
use crate::types::notices::Notices;
use crate::types::stats::Row;
use crate::types::trace::Event;
use crate::types::uffd::{Watch, WatchEvent};
use crate::vma::area::AreaFlags;
use crate::vma::bin::AreaBin;

/// The contents of a range that an unmap operation removes, as found by `check_unmap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) areas: usize,
    pub(crate) pages: u64,
    /// Whether a marker in the range can extend beyond it.
    pub(crate) guarded: bool,
}

impl<M: Machine> AddressSpace<M> {
    /// Unmaps `length` bytes, rounded up to pages. Holes in the range are ignored.
    ///
    /// # Errors
    /// See [`UnmapError`]. On error nothing is unmapped.
    pub fn unmap(&self, address: VirtAddr, length: u64) -> Result<(), UnmapError> {
        self.unmap_telling(address, length, &mut |_, _| {})
    }

    /// Like [`unmap`](Self::unmap), and also calls `witness` for each userfaultfd context in the range that receives
    /// unmap events. The address space is locked while `witness` runs. Each event names the complete range of the call.
    /// If the call fails at a sealed area, the events of the areas below it are still sent (`vms_gather_munmap_vmas`).
    ///
    /// # Errors
    /// See [`unmap`](Self::unmap).
    pub fn unmap_telling(
        &self,
        address: VirtAddr,
        length: u64,
        witness: &mut dyn FnMut(&Watch, WatchEvent),
    ) -> Result<(), UnmapError> {
        let core = &self.core;
        let range = check::pages(address, length).map_err(|error| match error {
            RangeError::Misaligned => UnmapError::Misaligned,
            RangeError::Wraps => UnmapError::OutOfRange,
        })?;
        if range.is_empty() {
            return Err(UnmapError::NoLength);
        }
        if range.end > core.bounds().end {
            return Err(UnmapError::OutOfRange);
        }
        let mut bin = AreaBin::new();
        let mut areas = core.areas.write();
        let unmapped = core.unmap_range(&mut areas, range, &mut bin);
        bin.notices.tell(witness);
        drop(areas);
        drop(bin);
        unmapped?;
        core.memory.trace(|| Event::Unmap { range });
        Ok(())
    }
}

/// Returns an error if `part` must not be unmapped: the area is sealed, or an edge of the part is inside a hugetlb
/// page.
#[cold]
fn check_kept(flags: AreaFlags, part: PageRange) -> Result<(), UnmapError> {
    if flags.contains(AreaFlags::SEALED) {
        return Err(UnmapError::Sealed(part.start.address()));
    }
    if cuts_hugetlb(flags, part) {
        return Err(UnmapError::Misaligned);
    }
    Ok(())
}

impl<M: Machine> Core<M> {
    /// Checks that no part of `range` is sealed, that no edge cuts a hugetlb page, and that the area limit allows the
    /// split that unmapping can need. Adds the unmap events of userfaultfd contexts to `notices`. Returns what must be
    /// removed to unmap `range`.
    fn check_unmap(
        &self,
        areas: &Areas<M>,
        range: PageRange,
        notices: &mut Notices,
    ) -> Result<Removal, UnmapError> {
        let mut removal = Removal::default();
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.overlapping(range) {
            removal.areas += 1;
            removal.pages += area.range().intersect(range).len();
            removal.guarded |= area.flags().intersects(AreaFlags::MARKED);
            let cut_out = area.start() < range.start && range.end < area.end();
            if cut_out && areas.map.len() >= areas.limits.areas {
                return Err(UnmapError::OverLimit(Limit::Areas));
            }
            if area
                .flags
                .intersects(AreaFlags::SEALED | AreaFlags::HUGETLB | AreaFlags::UFFD)
            {
                check_kept(area.flags, area.range().intersect(range))?;
                notices.add(area.backing().watcher(), WatchEvent::Unmapped(range));
            }
            points.round();
        }
        Ok(removal)
    }

    /// Like [`check_unmap`](Self::check_unmap), for a caller that then unmaps the range. If the check fails at a sealed
    /// area that is not the first area of the range, splits the first area at the start of the range, as Linux does
    /// (`vms_gather_munmap_vmas`).
    pub(crate) fn prepare_unmap(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        notices: &mut Notices,
    ) -> Result<Removal, UnmapError> {
        let checked = self.check_unmap(areas, range, notices);
        if let Err(UnmapError::Sealed(_)) = checked {
            self.cut_first(areas, range);
        }
        checked
    }

    /// Splits the first area that overlaps `range` at the start of `range`, unless it is sealed or memory is short.
    #[cold]
    fn cut_first(&self, areas: &mut Areas<M>, range: PageRange) {
        let first = areas.map.overlapping(range).next();
        let open = first.filter(|area| !area.flags().contains(AreaFlags::SEALED));
        let Some((flags, rest)) = open.map(|area| (area.flags, area.range().intersect(range)))
        else {
            return;
        };
        let cpu = self.cpu();
        if flags.intersects(AreaFlags::MARKED) && self.split_markers(cpu, rest).is_err() {
            return;
        }
        if areas.map.reserve(1).is_ok() {
            self.split_at_edges(rest, Row::HugeSplitsUnmap);
            areas.map.split_at(range.start);
            self.note_areas(cpu, areas);
        }
    }

    /// Checks whether `range` can be unmapped, reserves memory, and unmaps the range.
    pub(crate) fn unmap_range(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        bin: &mut AreaBin<Backing<M>>,
    ) -> Result<(), UnmapError> {
        let removal = self.prepare_unmap(areas, range, &mut bin.notices)?;
        if removal.areas == 0 {
            return Ok(());
        }
        areas.map.reserve(2)?;
        bin.reserve(removal.areas)?;
        let cpu = self.cpu();
        if removal.guarded {
            self.split_markers(cpu, range)?;
        }
        self.unmap_areas(cpu, areas, range, bin);
        self.note_areas(cpu, areas);
        Ok(())
    }

    /// Removes every area of `range`, its entries and its empty page tables. The caller must have reserved memory for
    /// two insertions in the map of areas, and space in `bin`.
    pub(crate) fn unmap_areas(
        &self,
        cpu: CpuId,
        areas: &mut Areas<M>,
        range: PageRange,
        bin: &mut AreaBin<Backing<M>>,
    ) {
        self.take_areas(areas, range, bin);
        self.remove_entries(cpu, range);
    }

    /// Splits the markers, and the huge pages, that cross an edge of `range`, so that removing the range cannot fail.
    #[cold]
    pub(crate) fn split_markers(&self, cpu: CpuId, range: PageRange) -> Result<(), OutOfFrames> {
        let mut gather = self.gather();
        let result = self.table.cursor(range).split_edges(&mut gather);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        result
    }

    /// Removes every area of `range` from the map of areas, and subtracts it from the totals. The caller must have
    /// reserved memory for two insertions in the map, and space in `bin`.
    pub(crate) fn take_areas(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        bin: &mut AreaBin<Backing<M>>,
    ) {
        areas.map.split_at(range.start);
        areas.map.split_at(range.end);
        let mut next = areas.map.at_or_after(range.start);
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        while let Some(position) = next.filter(|next| areas.map.get(*next).start() < range.end) {
            let area;
            (area, next) = areas.map.remove(position);
            areas.count_out(area.rights, area.flags, area.pages());
            if area.flags().contains(AreaFlags::ACCOUNTED) {
                self.memory.take_back(area.pages());
            }
            if area.flags().contains(AreaFlags::HUGETLB) {
                area.forget_reservation();
            }
            bin.take(area);
            points.round();
        }
    }
}
