//! Queries that do not change the address space.

use core::sync::atomic::Ordering;
use memwright_table::sync::PausePoints;
use memwright_table::{Architecture, Bits, Entry, FrameKind, Machine, PageRange, VirtAddr};

use crate::mm::areas::{Areas, Totals};
use crate::mm::core::Core;
use crate::mm::space::{AREAS, AddressSpace, Area};
use crate::mm::theme::Usage;
use crate::types::memcg::Memcg;
use crate::vma::area::AreaFlags;

impl<M: Machine> AddressSpace<M> {
    /// Returns whether any page of the `length` bytes from `address` on belongs to a hugetlb area.
    pub fn has_hugetlb(&self, address: VirtAddr, length: u64) -> bool {
        let Some(range) = PageRange::from_addresses(address, length) else {
            return false;
        };
        let areas = self.core.areas.read(self.core.cpu());
        let mut shown = areas.map.overlapping(range);
        shown.any(|area| area.flags().contains(AreaFlags::HUGETLB))
    }

    /// Calls `visitor` with every area in ascending order. The address space is locked for reading: `visitor` must not
    /// call into it.
    pub fn areas(&self, visitor: &mut dyn FnMut(&Area<M>)) {
        let areas = self.core.areas.read(self.core.cpu());
        areas.map.iter().for_each(visitor);
    }

    /// Returns the number of areas.
    pub fn area_count(&self) -> usize {
        self.core.areas.read(self.core.cpu()).map.len()
    }

    /// Calls `visitor` with each area in ascending order, from the area that contains or follows `address`, until
    /// `visitor` returns false. The address space is locked for reading: `visitor` must not call into it.
    pub fn areas_from(&self, address: VirtAddr, visitor: &mut dyn FnMut(&Area<M>) -> bool) {
        let areas = self.core.areas.read(self.core.cpu());
        let range = PageRange::new(address.page().min(M::Arch::USER.end), M::Arch::USER.end);
        let _ = areas.map.overlapping(range).all(visitor);
    }

    /// Calls `visitor` with the area that contains `address`, or else with the next area above. Returns the result of
    /// `visitor`, or `None` if there is no such area.
    pub fn find<R>(&self, address: VirtAddr, visitor: impl FnOnce(&Area<M>) -> R) -> Option<R> {
        let areas = self.core.areas.read(self.core.cpu());
        let position = areas.map.at_or_after(address.page())?;
        Some(visitor(areas.map.get(position)))
    }

    /// Returns whether any page of the `length` bytes from `address` on belongs to an area. Returns true if the range
    /// wraps around.
    pub fn is_mapped(&self, address: VirtAddr, length: u64) -> bool {
        let Some(range) = PageRange::from_addresses(address, length) else {
            return true;
        };
        let areas = self.core.areas.read(self.core.cpu());
        areas.map.overlapping(range).next().is_some()
    }

    /// Returns the entry of the page at `address`, for /proc/PID/pagemap.
    pub fn entry(&self, address: VirtAddr) -> Entry {
        let page = address.page();
        if page >= M::Arch::USER.end {
            return Entry::Empty;
        }
        let _areas = self.core.areas.read(self.core.cpu());
        self.core.table.look(PageRange::single(page)).entry().entry
    }

    /// Sets the memcg that is charged for swap slots from now on, when pages of this address space are swapped out.
    pub fn set_memcg(&self, memcg: Memcg) {
        self.core.set_memcg(memcg);
    }
}

impl<M: Machine> Usage<'_, M> {
    /// Returns the numbers of mapped, resident and swapped pages of the address space. Walks the page table only for
    /// hugetlb areas and for areas whose objects are files. The other numbers are read from counters.
    pub fn totals(&self) -> Totals {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        let (resident, objects) = (core.resident(), core.resident_objects());
        let special = if core.has_special_areas() {
            core.count_special(&areas)
        } else {
            Special::default()
        };
        Totals {
            mapped: areas.mapped,
            mapped_peak: areas.mapped_peak,
            data: areas.data,
            stack: areas.stack,
            executable: areas.executable,
            locked: areas.locked,
            pinned: core.pinned_pages().load(Ordering::Relaxed),
            resident,
            resident_peak: core.peak(),
            resident_anonymous: resident.saturating_sub(objects),
            resident_file: special.file,
            resident_shared: objects.saturating_sub(special.file),
            hugetlb: special.hugetlb,
            swapped: core.swapped(),
            table_frames: core.table.table_frames(),
        }
    }

    /// Returns the number of resident pages (`VmRSS`) without a walk of the page table.
    pub fn resident_pages(&self) -> u64 {
        self.space.core.resident()
    }

    /// Returns how many of the resident pages belong to objects, without a walk of the page table.
    pub fn resident_object_pages(&self) -> u64 {
        self.space.core.resident_objects()
    }

    /// Returns the number of pages in swap (`VmSwap`).
    pub fn swapped_pages(&self) -> u64 {
        self.space.core.swapped()
    }

    /// Returns the peak number of resident pages, as last sampled (`ru_maxrss`).
    pub fn resident_peak(&self) -> u64 {
        self.space.core.peak()
    }
}

/// Numbers of pages that a walk of the page table counts.
#[derive(Default)]
struct Special {
    /// The number of pages of objects that are files.
    file: u64,
    /// The number of hugetlb pages.
    hugetlb: u64,
}

impl<M: Machine> Core<M> {
    /// Counts the pages of hugetlb areas and of areas whose objects are files.
    fn count_special(&self, areas: &Areas<M>) -> Special {
        let mut special = Special::default();
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.iter() {
            points.round();
            let pooled = area.flags().contains(AreaFlags::HUGETLB);
            let memory = area.object().is_none_or(|object| object.is_memory());
            if memory && !pooled {
                continue;
            }
            let mut cursor = self.table.look(area.range()).pausing();
            while let Some(extent) = cursor.next_filled() {
                let pages = extent.range.len();
                if pooled {
                    special.hugetlb += u64::from(extent.entry.present().is_some()) * pages;
                } else if let Some(kind) = self.kind_of(extent.entry) {
                    special.file += u64::from(!kind.is_private()) * pages;
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
        special
    }

    /// Returns the kind of the frame that an entry maps, if the entry counts as resident.
    pub(crate) fn kind_of(&self, entry: Entry) -> Option<FrameKind> {
        let page = entry.present()?;
        let counted = !page.bits.contains(Bits::BORROWED);
        counted.then(|| self.memory.frames().kind(page.frame))
    }
}
