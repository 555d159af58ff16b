//! `MappingBackend` of `memory_set`, on an [`AddressSpace`].
//!
//! A kernel keeps its `MemorySet`, which decides where areas are, and Memwright maps them: it has an area for each area
//! of the set, and populates the pages on faults. The kernel calls [`Space::handle_page_fault`] from its page fault
//! handler.
//!
//! ```
//! use std::sync::Arc;
//!
//! use memory_addr::VirtAddr;
//! use memory_set::{MemoryArea, MemorySet};
//! use memwright::{AddressSpace, FaultKind, Layout, Memory, Policy};
//! use memwright_adapters::set::{Backend, Space};
//! use memwright_sim::{MachineOptions, SimulatedMachine};
//! use page_table_multiarch::MappingFlags;
//!
//! let machine = SimulatedMachine::new(MachineOptions::default());
//! let memory = Arc::new(Memory::new(machine.frames(), Policy::default()).unwrap());
//! let layout = Layout {
//!     lowest: memwright_table::VirtAddr::new(0x1_0000),
//!     mmap_top: memwright_table::VirtAddr::new(0x7fff_f000_0000),
//!     highest: memwright_table::VirtAddr::USER_END,
//! };
//! let space = Arc::new(AddressSpace::new(memory, layout).unwrap());
//!
//! let mut space = Space::new(space);
//! let mut set = MemorySet::new();
//! let start = VirtAddr::from_usize(0x40_0000);
//! let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
//! let area = MemoryArea::new(start, 0x4000, flags, Backend::Alloc { populate: false });
//! set.map(area, &mut space, false).unwrap();
//! assert_eq!(space.handle_page_fault(start, MappingFlags::WRITE), Ok(FaultKind::DemandZero));
//! ```

use alloc::sync::Arc;

use memory_addr::VirtAddr;
use memory_set::MappingBackend;
use memwright::object::Object;
use memwright::{
    Access, AddressSpace, FaultError, FaultKind, MapError, MapKind, MapRequest, Placement,
    ProtectError, UnmapError,
};
use memwright_table::{CacheMode, Machine, PAGE_SIZE, PhysAddr, VirtAddr as TableAddr};
use page_table_multiarch::MappingFlags;

use crate::flags::{self, Unsupported};

/// What the areas of a `MemorySet` map.
pub enum Backend<M: Machine> {
    /// Private anonymous memory.
    Alloc {
        /// Whether all pages are populated at once. A page that cannot be populated then is populated by a later fault.
        populate: bool,
    },
    /// An object, such as a file or shared memory.
    Object {
        /// The object.
        object: Arc<dyn Object<M>>,
        /// The virtual address at which the object begins. It can be below the start of the area.
        origin: VirtAddr,
        /// Whether stores change the object. Otherwise a store changes a private copy of the page.
        shared: bool,
    },
    /// Device memory at a fixed distance between virtual and physical addresses.
    Linear {
        /// The virtual address of each byte minus its physical address, wrapping.
        pa_va_offset: usize,
    },
}

impl<M: Machine> Clone for Backend<M> {
    fn clone(&self) -> Self {
        match self {
            Self::Alloc { populate } => Self::Alloc {
                populate: *populate,
            },
            Self::Object {
                object,
                origin,
                shared,
            } => Self::Object {
                object: Arc::clone(object),
                origin: *origin,
                shared: *shared,
            },
            Self::Linear { pa_va_offset } => Self::Linear {
                pa_va_offset: *pa_va_offset,
            },
        }
    }
}

/// Why Memwright refused an operation of a `MemorySet`. The trait reports only that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The start or the size is not a multiple of 4 KiB.
    Misaligned,
    /// The area begins below the origin of its object.
    BelowOrigin,
    /// A page of user memory cannot have the flags, or only device memory can have them.
    Flags(Unsupported),
    /// The mapping failed.
    Map(MapError),
    /// The unmapping failed.
    Unmap(UnmapError),
    /// The protection change failed. Areas of Memwright below the address in the error, if it has one, have changed.
    Protect(ProtectError),
}

/// The page table of a `MemorySet`: an address space, and the reason for which it last refused an operation.
pub struct Space<M: Machine> {
    space: Arc<AddressSpace<M>>,
    refused: Option<Refusal>,
}

impl<M: Machine> Space<M> {
    /// Returns the page table that maps into `space`.
    pub fn new(space: Arc<AddressSpace<M>>) -> Self {
        Self {
            space,
            refused: None,
        }
    }

    /// Returns the address space.
    pub fn space(&self) -> &Arc<AddressSpace<M>> {
        &self.space
    }

    /// Returns the reason for which the last failed operation failed, and clears it. `MemorySet::protect` returns no
    /// error if its backend fails, so a kernel calls this method after each call of `protect`.
    pub fn take_refused(&mut self) -> Option<Refusal> {
        self.refused.take()
    }

    /// Handles a page fault by a program. `access` is `READ`, `WRITE` or `EXECUTE`. `Ok` means that the instruction can
    /// be restarted. The function changes no area, so it can run on several CPUs.
    ///
    /// # Errors
    /// See [`FaultError`].
    pub fn handle_page_fault(
        &self,
        vaddr: VirtAddr,
        access: MappingFlags,
    ) -> Result<FaultKind, FaultError> {
        let access = Access {
            write: access.contains(MappingFlags::WRITE),
            fetch: access.contains(MappingFlags::EXECUTE),
            user: true,
        };
        self.space.fault(address(vaddr), access)
    }

    fn map(
        &self,
        backend: &Backend<M>,
        start: VirtAddr,
        size: usize,
        flags: MappingFlags,
    ) -> Result<(), Refusal> {
        check_aligned(start, size)?;
        let (rights, cache) = flags::rights(flags).map_err(Refusal::Flags)?;
        let length = size as u64;
        let mut request = MapRequest::anonymous(length, rights);
        match backend {
            Backend::Alloc { populate } => {
                check_cached(cache, flags)?;
                request.populate = *populate;
            }
            Backend::Object {
                object,
                origin,
                shared,
            } => {
                check_cached(cache, flags)?;
                let offset = start.as_usize().checked_sub(origin.as_usize());
                request.kind = MapKind::Object {
                    object: Arc::clone(object),
                    offset: offset.ok_or(Refusal::BelowOrigin)? as u64,
                    shared: *shared,
                };
            }
            Backend::Linear { pa_va_offset } => {
                let physical = start.as_usize().wrapping_sub(*pa_va_offset);
                request.kind = MapKind::Physical {
                    start: PhysAddr::new(physical as u64),
                    cache,
                };
            }
        }
        // The set has checked that the range is free. If Memwright has an area in it, the set and Memwright disagree.
        let request = request.at(Placement::FixedNoReplace(address(start)));
        self.space.map(&request).map_err(Refusal::Map).map(|_| ())
    }

    fn unmap(&self, start: VirtAddr, size: usize) -> Result<(), Refusal> {
        check_aligned(start, size)?;
        let unmapped = self.space.unmap(address(start), size as u64);
        unmapped.map_err(Refusal::Unmap)
    }

    /// The cache mode of an area does not change. Only the entries of device memory record its cache mode. All flags
    /// for the cache mode are therefore ignored here: `MemorySet` passes those of the area along with the new rights.
    fn protect(&self, start: VirtAddr, size: usize, flags: MappingFlags) -> Result<(), Refusal> {
        check_aligned(start, size)?;
        let (rights, _) = flags::rights(flags).map_err(Refusal::Flags)?;
        let changed = self.space.protect(address(start), size as u64, rights);
        changed.map_err(Refusal::Protect)
    }

    /// Records the error of `result`, if it is one. Returns whether `result` was `Ok`.
    fn note(&mut self, result: Result<(), Refusal>) -> bool {
        match result {
            Ok(()) => true,
            Err(refusal) => {
                self.refused = Some(refusal);
                false
            }
        }
    }
}

impl<M: Machine> MappingBackend for Backend<M> {
    type Addr = VirtAddr;
    type Flags = MappingFlags;
    type PageTable = Space<M>;

    fn map(
        &self,
        start: VirtAddr,
        size: usize,
        flags: MappingFlags,
        page_table: &mut Space<M>,
    ) -> bool {
        let result = page_table.map(self, start, size, flags);
        page_table.note(result)
    }

    fn unmap(&self, start: VirtAddr, size: usize, page_table: &mut Space<M>) -> bool {
        let result = page_table.unmap(start, size);
        page_table.note(result)
    }

    fn protect(
        &self,
        start: VirtAddr,
        size: usize,
        new_flags: MappingFlags,
        page_table: &mut Space<M>,
    ) -> bool {
        let result = page_table.protect(start, size, new_flags);
        page_table.note(result)
    }
}

fn address(vaddr: VirtAddr) -> TableAddr {
    TableAddr::new(vaddr.as_usize() as u64)
}

fn check_aligned(start: VirtAddr, size: usize) -> Result<(), Refusal> {
    if (start.as_usize() | size).is_multiple_of(PAGE_SIZE) {
        Ok(())
    } else {
        Err(Refusal::Misaligned)
    }
}

/// Returns an error if `flags` would make memory of the allocator uncached.
fn check_cached(cache: CacheMode, flags: MappingFlags) -> Result<(), Refusal> {
    match cache {
        CacheMode::WriteBack => Ok(()),
        CacheMode::WriteCombining | CacheMode::Uncached => {
            Err(Refusal::Flags(Unsupported::Flags(flags.bits() as u64)))
        }
    }
}
