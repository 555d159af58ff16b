//! Mapping device memory (Linux 7.2 `mm/memory.c`, `remap_pfn_range`). All entries are set at once, because no fault
//! can supply a page: a frame of device memory has no metadata, and no object has references to it.

use memwright_table::{
    Bits, CacheMode, Entry, Frame, FrameRange, Machine, OutOfFrames, PAGE_SIZE, PageRange,
    PhysAddr, Present,
};

use crate::mm::areas::Backing;
use crate::mm::attachment::Attachment;
use crate::mm::core::Core;
use crate::mm::cut::device_entry_size;
use crate::mm::space::{AddressSpace, Area};
use crate::ops::align_huge::align_huge;
use crate::ops::map::{MapKind, MapRequest, place, prepare};
use crate::ops::populate::{Mapped, ToPopulate};
use crate::types::error::MapError;
use crate::types::numa_policy::PolicyId;
use crate::types::swap_window::{Window, WindowCell};
use crate::types::trace::Event;
use crate::types::uffd::{Watch, WatchEvent};
use crate::vma::anon_vma::{AnonVma, AnonVmaCell};
use crate::vma::area::AreaFlags;
use crate::vma::bin::AreaBin;

/// The flags that all areas of device memory have (`remap_pfn_range_prepare_vma`). One of them excludes the memory from
/// core dumps.
const FLAGS: AreaFlags = AreaFlags::SHARED
    .union(AreaFlags::PHYSICAL)
    .union(AreaFlags::DONTDUMP)
    .union(AreaFlags::SOFT_DIRTY);

impl<M: Machine> AddressSpace<M> {
    /// Implements [`map_telling`](Self::map_telling) for device memory, which is never locked, accounted or populated.
    ///
    /// # Errors
    /// See [`map`](Self::map).
    #[cold]
    #[inline(never)]
    pub(super) fn map_physical(
        &self,
        request: &MapRequest<M>,
        witness: &mut dyn FnMut(&Watch, WatchEvent),
    ) -> Result<Mapped, MapError> {
        let MapKind::Physical { start, cache } = request.kind else {
            return Err(MapError::Denied);
        };
        let core = &self.core;
        let cpu = core.cpu();
        let pages = self.check_length(request)?;
        core.check_physical(start, pages)?;
        let unwanted = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        let (rights, flags) = (request.rights, (request.flags - unwanted) | FLAGS);
        let mut bin = AreaBin::new();
        let mut areas = core.areas.write();
        if areas.exec_gain.forbids(rights, rights) {
            return Err(MapError::Denied);
        }
        let free = place(core, &mut areas, pages, request.placement)?;
        let first = align_huge(core, &mut areas, pages, request, free);
        let range = PageRange::new(first, first.add(pages));
        let offset = start.as_u64() / PAGE_SIZE as u64;
        let span = offset..offset + pages;
        let attachment = Attachment::new(core.memory.device(), core, span, first)?;
        let replaced = prepare(core, &mut areas, range, rights, flags, &mut bin);
        bin.notices.tell(witness);
        if replaced?.areas > 0 {
            core.unmap_areas(cpu, &mut areas, range, &mut bin);
        }
        core.clear_way(range);
        let area: Area<M> = Area {
            range,
            offset,
            flags,
            rights,
            max_rights: request.max_rights,
            placement: PolicyId::NONE,
            anon_vma: AnonVmaCell::new(AnonVma::NONE),
            window: WindowCell::new(Window::NONE),
            backing: Backing::object_of(attachment),
        };
        let filled = core.fill_physical(&area, cache);
        if filled.is_ok() {
            areas.count_in(rights, flags, pages);
            areas.map.insert(area);
        }
        core.note_areas(cpu, &mut areas);
        drop(areas);
        drop(bin);
        filled?;
        core.memory.trace(|| Event::Map { range, rights });
        Ok(Mapped {
            start: first.address(),
            to_populate: ToPopulate::nothing_at(first),
        })
    }
}

impl<M: Machine> Core<M> {
    /// Checks that the machine has device memory at the `pages` pages from `start` on.
    #[cold]
    fn check_physical(&self, start: PhysAddr, pages: u64) -> Result<(), MapError> {
        let number = start.as_u64() / PAGE_SIZE as u64;
        if start.as_u64() % PAGE_SIZE as u64 != 0 {
            return Err(MapError::Misaligned);
        }
        let range = u32::try_from(number)
            .ok()
            .zip(u32::try_from(pages).ok())
            .filter(|_| number + pages <= u64::from(u32::MAX))
            .map(|(number, count)| FrameRange {
                start: Frame::new(number),
                count,
            });
        let frames = self.memory.frames();
        let accepted = range.is_some_and(|range| {
            frames.machine().has_device_memory(range) && frames.first_managed(range).is_none()
        });
        if accepted {
            Ok(())
        } else {
            Err(MapError::NotDevice(start))
        }
    }

    /// Sets the entries of `area`, which is not in the map of areas yet. Its range must have no entries and no page
    /// tables of its own. Uses entries of 2 MiB where the virtual and the physical addresses are both aligned.
    ///
    /// # Errors
    /// [`OutOfFrames`] if there is no frame for a table. No entry is left.
    #[cold]
    fn fill_physical(&self, area: &Area<M>, cache: CacheMode) -> Result<(), OutOfFrames> {
        let combines = self.memory.frames().machine().has_write_combining();
        let cache = if cache == CacheMode::WriteCombining && !combines {
            CacheMode::Uncached
        } else {
            cache
        };
        let range = area.range();
        let bits = area.entry_bits(Bits::BORROWED | Bits::of_cache(cache));
        let mut cursor = self.table.cursor(range).pausing();
        loop {
            let page = cursor.position();
            let number = area.offset_of(page);
            let entry = Entry::Present(Present {
                frame: Frame::new(number as u32),
                size: device_entry_size(page, number, range.end),
                bits,
            });
            if let Err(error) = cursor.fill(entry) {
                drop(cursor);
                self.remove_entries(self.cpu(), range);
                return Err(error);
            }
            if !cursor.advance() {
                return Ok(());
            }
        }
    }
}
