//! Unmapping (Linux 7.2 `mm/vma.c`, `do_vmi_munmap`).

use memwright_table::sync::PausePoints;
use memwright_table::{CpuId, Machine, OutOfFrames, PageRange, VirtAddr};

use super::check::{self, RangeError};
use super::{AREAS, AddressSpace, Areas, Backing, Core, cuts_hugetlb};
use crate::error::{Limit, UnmapError};
use crate::stats::Row;
use crate::trace::Event;
use crate::uffd::{Notices, Watch, WatchEvent};
use crate::vma::{AreaBin, AreaFlags};

/// What unmapping a range would take away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) areas: usize,
    pub(crate) pages: u64,
    /// Guard markers may stand there, and reach beyond.
    pub(crate) guarded: bool,
}

impl<M: Machine> AddressSpace<M> {
    /// Unmaps `length` bytes, rounded up to pages. Where nothing is mapped nothing happens.
    ///
    /// # Errors
    /// As [`UnmapError`] says; nothing is unmapped.
    pub fn unmap(&self, address: VirtAddr, length: u64) -> Result<(), UnmapError> {
        self.unmap_telling(address, length, &mut |_, _| {})
    }

    /// The same. Watchers that want to know are shown to `witness` while the address space is locked, with the whole
    /// range, and also where a sealed area behind what they watch refuses it (`vms_gather_munmap_vmas`).
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap).
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

/// Whether the part `part` of an area with these flags, sealed or of huge pages of the pool, may go.
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
    /// What unmapping `range` takes away, if no part of it is sealed and the area limit allows the split it may
    /// need.
    fn check_unmap(
        &self,
        areas: &Areas<M>,
        range: PageRange,
        notices: &mut Notices,
    ) -> Result<Removal, UnmapError> {
        let mut removal = Removal::default();
        let mut points = PausePoints::every(AREAS);
        for area in areas.map.overlapping(range) {
            removal.areas += 1;
            removal.pages += area.range().intersect(range).len();
            removal.guarded |= area.flags.intersects(AreaFlags::MARKED);
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

    /// The same, for whoever unmaps then. Where a sealed area behind others stops it, the first has been cut already, as
    /// on Linux (`vms_gather_munmap_vmas`).
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

    /// Cuts the first area that `range` meets where that begins, unless it is sealed or there is no memory for it.
    #[cold]
    fn cut_first(&self, areas: &mut Areas<M>, range: PageRange) {
        let first = areas.map.overlapping(range).next();
        let open = first.filter(|area| !area.flags.contains(AreaFlags::SEALED));
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

    /// Checks, reserves and unmaps.
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

    /// Takes every area of `range`, its entries and its empty tables away. Two insertions and room in
    /// `bin` must have been reserved.
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

    /// Takes out every entry of `range` and frees the tables that are empty then.
    pub(crate) fn remove_entries(&self, cpu: CpuId, range: PageRange) {
        self.note_peak(cpu);
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range).pausing();
        self.split_cut(&mut cursor, &mut gather, Row::HugeSplitsUnmap);
        cursor.remove_all(&mut gather);
        cursor.free_tables(&mut gather);
        drop(cursor);
        let counts = gather.close();
        self.note_gather(cpu, counts);
    }

    /// Makes sure that the edges of `range` cut through no marker, so that removing it cannot fail.
    #[cold]
    pub(crate) fn split_markers(&self, cpu: CpuId, range: PageRange) -> Result<(), OutOfFrames> {
        let mut gather = self.gather();
        let result = self.table.cursor(range).split_edges(&mut gather);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        result
    }

    /// Takes every area of `range` out of the map and out of the totals.
    fn take_areas(&self, areas: &mut Areas<M>, range: PageRange, bin: &mut AreaBin<Backing<M>>) {
        areas.map.split_at(range.start);
        areas.map.split_at(range.end);
        let mut next = areas.map.at_or_after(range.start);
        let mut points = PausePoints::every(AREAS);
        while let Some(position) = next.filter(|next| areas.map.get(*next).start() < range.end) {
            let area;
            (area, next) = areas.map.remove(position);
            areas.count_out(area.rights, area.flags, area.pages());
            if area.flags.contains(AreaFlags::ACCOUNTED) {
                self.memory.take_back(area.pages());
            }
            if area.flags.contains(AreaFlags::HUGETLB) {
                area.forget_reservation();
            }
            bin.take(area);
            points.round();
        }
    }
}
