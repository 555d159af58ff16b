//! Mapping (Linux 7.2 `mm/mmap.c`, `do_mmap`, and `mm/vma.c`, `mmap_region`).

use alloc::sync::Arc;
use memwright_table::{CacheMode, Machine, PAGE_SIZE, Page, PageRange, PhysAddr, VirtAddr};

use crate::ksm::mergeable;
use crate::mm::areas::{Areas, Backing, LockFuture, is_accountable};
use crate::mm::attachment::{Attachment, check_objects};
use crate::mm::core::Core;
use crate::mm::huge_file::HUGE_BYTES;
use crate::mm::object::Object;
use crate::mm::space::{AddressSpace, Area};
use crate::ops::align_huge::align_huge;
use crate::ops::place_hugetlb::place_hugetlb;
use crate::ops::populate::{Mapped, ToPopulate};
use crate::ops::unmap::Removal;
use crate::types::error::{Limit, MapError, UnmapError};
use crate::types::huge::HUGE_PAGES;
use crate::types::rights::Rights;
use crate::types::swap_window::{Window, WindowCell};
use crate::types::trace::Event;
use crate::types::uffd::{Watch, WatchEvent};
use crate::vma::anon_vma::{AnonVma, AnonVmaCell};
use crate::vma::area::AreaFlags;
use crate::vma::bin::AreaBin;

/// The memory that a mapping request maps.
pub enum MapKind<M: Machine> {
    /// Private anonymous memory.
    Anonymous,
    /// An object. Shared anonymous memory is a new [`Shmem`](crate::object::Shmem).
    Object {
        /// The object to map.
        object: Arc<dyn Object<M>>,
        /// The start of the mapping in the object, in bytes.
        offset: u64,
        /// Whether the mapping is shared: stores then change the object, not a private copy of the page.
        shared: bool,
    },
    /// Device memory, like a mapping by Linux's `remap_pfn_range`. The mapping is shared, also with forked children. It
    /// is never counted as resident, reclaimed, migrated, merged or pinned, and its frames are never freed.
    Physical {
        /// The first physical address, a multiple of the page size.
        start: PhysAddr,
        /// The mode in which the processor caches the memory. All mappings of a frame should have the same mode: the
        /// processor's manual leaves the order of accesses through different modes undefined.
        cache: CacheMode,
    },
}

/// The choice of the address of a new mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Any free range. The search goes from the top downwards.
    Anywhere,
    /// This address if the range is free, otherwise like [`Anywhere`](Self::Anywhere).
    Hint(VirtAddr),
    /// This address, replacing existing mappings (`MAP_FIXED`).
    Fixed(VirtAddr),
    /// This address. Fails if the range is not free (`MAP_FIXED_NOREPLACE`).
    FixedNoReplace(VirtAddr),
}

/// The arguments of a mapping.
pub struct MapRequest<M: Machine> {
    /// The length in bytes, rounded up to pages.
    pub length: u64,
    /// The rights of the program.
    pub rights: Rights,
    /// The maximum rights that a later protection change can grant. For a shared mapping of a file that was opened
    /// read-only, for example, they exclude writing.
    pub max_rights: Rights,
    /// The memory to map.
    pub kind: MapKind<M>,
    /// The choice of the address.
    pub placement: Placement,
    /// The flags of the area. The memory manager sets [`AreaFlags::MANAGED`] as needed.
    pub flags: AreaFlags,
    /// Whether to populate the mapping (`MAP_POPULATE`). A page that cannot be faulted in is not an error.
    pub populate: bool,
}

impl<M: Machine> MapRequest<M> {
    /// Requests private anonymous memory at any free range.
    pub fn anonymous(length: u64, rights: Rights) -> Self {
        Self {
            length,
            rights,
            max_rights: Rights::all(),
            kind: MapKind::Anonymous,
            placement: Placement::Anywhere,
            flags: AreaFlags::empty(),
            populate: false,
        }
    }

    /// Requests a mapping of an object from byte `offset` on, at any free range.
    pub fn object(
        object: Arc<dyn Object<M>>,
        offset: u64,
        length: u64,
        rights: Rights,
        shared: bool,
    ) -> Self {
        let kind = MapKind::Object {
            object,
            offset,
            shared,
        };
        Self {
            kind,
            ..Self::anonymous(length, rights)
        }
    }

    /// Requests a mapping of the device memory from the physical address `start` on, at any free range.
    pub fn physical(start: PhysAddr, length: u64, rights: Rights, cache: CacheMode) -> Self {
        Self {
            kind: MapKind::Physical { start, cache },
            ..Self::anonymous(length, rights)
        }
    }

    /// Sets the placement.
    #[must_use]
    pub fn at(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Adds flags.
    #[must_use]
    pub fn with(mut self, flags: AreaFlags) -> Self {
        self.flags |= flags;
        self
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Maps what `request` describes and returns the address.
    ///
    /// # Errors
    /// See [`MapError`]. On error the address space is unchanged, with the exception that [`MapError`] describes.
    pub fn map(&self, request: &MapRequest<M>) -> Result<VirtAddr, MapError> {
        let mapped = self.map_telling(request, &mut |_, _| {})?;
        self.residency().populate_now(mapped.to_populate);
        Ok(mapped.start)
    }

    /// Like [`map`](Self::map), but leaves populating to the caller. Calls `witness` for the userfaultfd contexts of
    /// replaced mappings, like [`unmap_telling`](Self::unmap_telling).
    ///
    /// # Errors
    /// See [`map`](Self::map).
    pub fn map_telling(
        &self,
        request: &MapRequest<M>,
        witness: &mut dyn FnMut(&Watch, WatchEvent),
    ) -> Result<Mapped, MapError> {
        if let MapKind::Physical { .. } = request.kind {
            return self.map_physical(request, witness);
        }
        let core = &self.core;
        let cpu = core.cpu();
        let mut pages = self.check_length(request)?;
        let mut flags = request.flags | AreaFlags::SOFT_DIRTY;
        if let MapKind::Object {
            shared,
            object,
            offset,
        } = &request.kind
        {
            check_objects()?;
            flags.set(AreaFlags::SHARED, *shared);
            if object.huge().is_some() {
                if offset % HUGE_BYTES != 0 {
                    return Err(MapError::Misaligned);
                }
                flags |= AreaFlags::HUGETLB;
                pages = pages.next_multiple_of(HUGE_PAGES);
            }
        }
        let mut bin = AreaBin::new();
        let mut areas = core.areas.write();
        if areas.exec_gain.forbids(request.rights, request.rights) {
            return Err(MapError::Denied);
        }
        match areas.lock_future {
            LockFuture::No => {}
            LockFuture::Populated => flags |= AreaFlags::LOCKED,
            LockFuture::OnFault => flags |= AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT,
        }
        if flags.intersects(AreaFlags::DROPPABLE | AreaFlags::HUGETLB) {
            // Droppable memory is never locked, and hugetlb pages are always resident: their areas get no lock flags.
            flags -= AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        }
        if areas.merge_all {
            flags = mergeable(flags, true);
        }
        if is_accountable(request.rights, flags) {
            flags |= AreaFlags::ACCOUNTED;
        }
        let start = if flags.contains(AreaFlags::HUGETLB) {
            place_hugetlb(core, &mut areas, pages, request.placement)?
        } else {
            let start = place(core, &mut areas, pages, request.placement)?;
            align_huge(core, &mut areas, pages, request, start)
        };
        let range = PageRange::new(start, start.add(pages));
        let offset = match request.kind {
            MapKind::Anonymous | MapKind::Physical { .. } => start.number(),
            MapKind::Object { offset, .. } => offset / PAGE_SIZE as u64,
        };
        let backing = match &request.kind {
            MapKind::Anonymous | MapKind::Physical { .. } => Backing::ANONYMOUS,
            MapKind::Object { object, .. } => {
                let span = offset..offset + pages;
                let attachment = Attachment::new(object.clone(), &self.core, span, start)?;
                Backing::object_of(attachment)
            }
        };
        let replaced = prepare(core, &mut areas, range, request.rights, flags, &mut bin);
        bin.notices.tell(witness);
        let replaced = replaced?;
        if replaced.areas > 0 {
            core.unmap_areas(cpu, &mut areas, range, &mut bin);
        }
        if flags.contains(AreaFlags::HUGETLB) {
            core.clear_way(range);
        }

        let area: Area<M> = Area {
            range,
            offset,
            flags,
            rights: request.rights,
            max_rights: request.max_rights,
            placement: crate::types::numa_policy::PolicyId::NONE,
            anon_vma: AnonVmaCell::new(AnonVma::NONE),
            window: WindowCell::new(Window::NONE),
            backing,
        };
        areas.count_in(request.rights, flags, pages);
        let position = areas.map.insert(area);
        areas.map.merge_around(position);
        core.note_areas(cpu, &mut areas);
        core.memory.trace(|| Event::Map {
            range,
            rights: request.rights,
        });
        drop(areas);
        drop(bin);

        let populates = request.populate || flags.contains(AreaFlags::LOCKED);
        Ok(Mapped {
            start: start.address(),
            to_populate: if populates {
                ToPopulate::new(range)
            } else {
                ToPopulate::nothing_at(start)
            },
        })
    }

    /// Checks whether `length` bytes can be mapped at `placement`. `huge` is true if hugetlb pages are to be mapped;
    /// other properties of the mapped memory do not matter. This check precedes all other checks of a mapping (Linux
    /// 7.3 `mm/mmap.c`, `do_mmap` up to `__get_unmapped_area`).
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn check_place(
        &self,
        length: u64,
        placement: Placement,
        huge: bool,
    ) -> Result<(), MapError> {
        let core = &self.core;
        let pages = length.div_ceil(PAGE_SIZE as u64);
        if pages > core.layout.highest.page().number() {
            return Err(MapError::OutOfRange);
        }
        let mut areas = core.areas.write();
        if areas.map.len() > areas.limits.areas {
            return Err(MapError::OverLimit(Limit::Areas));
        }
        let placed = if huge {
            place_hugetlb(core, &mut areas, pages, placement)
        } else {
            place(core, &mut areas, pages, placement)
        };
        placed.map(|_| ())
    }

    #[inline(always)]
    pub(super) fn check_length(&self, request: &MapRequest<M>) -> Result<u64, MapError> {
        if request.length == 0 {
            return Err(MapError::NoLength);
        }
        if !request.max_rights.contains(request.rights.without_key()) {
            return Err(MapError::Denied);
        }
        if request.flags.intersects(AreaFlags::MANAGED) {
            let managed = request.flags & AreaFlags::MANAGED;
            return Err(MapError::Flags(managed.bits()));
        }
        let pages = request.length.div_ceil(PAGE_SIZE as u64);
        if pages > self.core.layout.highest.page().number() {
            return Err(MapError::OutOfRange);
        }
        if let MapKind::Object { offset, .. } = request.kind {
            if offset % PAGE_SIZE as u64 != 0 {
                return Err(MapError::Misaligned);
            }
            // On Linux, offsets in a file are signed 64-bit numbers of bytes.
            let end = offset.checked_add(pages * PAGE_SIZE as u64);
            if end.is_none_or(|end| end > i64::MAX as u64) {
                return Err(MapError::OffsetTooLarge);
            }
        }
        Ok(pages)
    }
}

impl From<UnmapError> for MapError {
    fn from(error: UnmapError) -> Self {
        match error {
            UnmapError::NoLength => Self::NoLength,
            UnmapError::Misaligned => Self::Misaligned,
            UnmapError::OutOfRange => Self::OutOfRange,
            UnmapError::Sealed(address) => Self::Sealed(address),
            UnmapError::OverLimit(limit) => Self::OverLimit(limit),
            UnmapError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

/// Chooses the start of a new area.
pub(super) fn place<M: Machine>(
    core: &Core<M>,
    areas: &mut Areas<M>,
    pages: u64,
    placement: Placement,
) -> Result<Page, MapError> {
    let bounds = core.bounds();
    match placement {
        Placement::Fixed(address) | Placement::FixedNoReplace(address) => {
            if !address.is_aligned() {
                return Err(MapError::Misaligned);
            }
            let start = address.page();
            if start.number() + pages > bounds.end.number() {
                return Err(MapError::OutOfRange);
            }
            if start < bounds.start && !areas.limits.may_map_low {
                return Err(MapError::TooLow);
            }
            let range = PageRange::new(start, start.add(pages));
            if let Placement::FixedNoReplace(_) = placement {
                if let Some(area) = areas.map.overlapping(range).next() {
                    return Err(MapError::Taken(area.start().max(start).address()));
                }
            }
            return Ok(start);
        }
        Placement::Hint(address) => {
            let start = Page::new(address.as_u64().div_ceil(PAGE_SIZE as u64));
            let fits = start >= bounds.start && start.number() + pages <= bounds.end.number();
            if fits {
                let range = PageRange::new(start, start.add(pages));
                if areas.map.is_free(range) {
                    return Ok(start);
                }
            }
        }
        Placement::Anywhere => {}
    }
    let below = PageRange::new(bounds.start, core.layout.mmap_top.page());
    areas
        .map
        .highest_room(pages, below)
        .or_else(|| {
            areas
                .map
                .lowest_room(pages, PageRange::new(below.end, bounds.end))
        })
        .ok_or(MapError::NoRoom)
}

/// Checks every limit, accounts the memory, and reserves the heap memory and frames that the mapping needs. After this
/// function has succeeded, the rest of the mapping cannot fail.
#[inline(always)]
pub(super) fn prepare<M: Machine>(
    core: &Core<M>,
    areas: &mut Areas<M>,
    range: PageRange,
    rights: Rights,
    flags: AreaFlags,
    bin: &mut AreaBin<Backing<M>>,
) -> Result<Removal, MapError> {
    if areas.map.len() > areas.limits.areas {
        return Err(MapError::OverLimit(Limit::Areas));
    }
    let replaced = core.prepare_unmap(areas, range, &mut bin.notices)?;
    let pages = range.len();
    areas
        .check_growth(rights, flags, pages, replaced.pages)
        .map_err(MapError::OverLimit)?;
    if flags.contains(AreaFlags::LOCKED) {
        areas.check_locked(pages).map_err(MapError::OverLimit)?;
    }
    areas.map.reserve(3)?;
    bin.reserve(replaced.areas)?;
    if replaced.guarded {
        core.split_markers(core.cpu(), range)?;
    }
    if flags.contains(AreaFlags::ACCOUNTED) {
        core.memory
            .promise(pages)
            .map_err(|_| MapError::Overcommit)?;
    }
    Ok(replaced)
}
