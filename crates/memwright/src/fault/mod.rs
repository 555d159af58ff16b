//! The page fault handler, one file per outcome.
//!
//! A fault finds its area with the areas locked for reading, and then the entry under the lock of one page table. It
//! changes the entry so that the access succeeds. If an object has the page, the fault gets the page from the object
//! before it takes the page-table lock, and checks the entry again afterwards.

mod anon;
mod copy;
mod file;
mod folio;
mod force;
mod gup;
mod hint;
mod huge;
mod hugetlb;
mod present;
mod shared_folio;
mod stack;
mod swap;
mod swap_around;
mod swap_off;

pub(crate) use anon::NEW;
pub use gup::{FaultSink, FaultedIn};

use memwright_table::{Bits, CpuId, Entry, Machine, Marker, Marks, PageRange, PageSize, VirtAddr};

use crate::error::FaultError;
use crate::space::{AddressSpace, Area, Areas, Core};
use crate::stats::Row;
use crate::trace::Event;
use crate::uffd::WatchedFault;
use crate::vma::{AnonVma, AreaFlags, Rights};

/// The access that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// A store.
    pub write: bool,
    /// An instruction fetch.
    pub fetch: bool,
    /// The access was made by the thread itself or on its behalf, so the protection-key register of its CPU applies.
    /// False if another process made the access.
    pub user: bool,
}

impl Access {
    /// A load.
    pub const READ: Self = Self {
        write: false,
        fetch: false,
        user: true,
    };
    /// A store.
    pub const WRITE: Self = Self {
        write: true,
        ..Self::READ
    };
    /// An instruction fetch.
    pub const FETCH: Self = Self {
        fetch: true,
        ..Self::READ
    };

    /// Returns the name used in traces.
    pub const fn name(self) -> &'static str {
        match (self.fetch, self.write) {
            (true, _) => "fetch",
            (false, true) => "write",
            (false, false) => "read",
        }
    }

    /// Whether an area with these rights permits the access (Linux 7.2 `arch/x86/mm/fault.c`, `access_error`: any right
    /// permits reading).
    pub(crate) fn allowed_by(self, rights: Rights) -> bool {
        if self.fetch {
            rights.contains(Rights::EXECUTE)
        } else if self.write {
            rights.contains(Rights::WRITE)
        } else {
            !rights.is_none()
        }
    }

    /// Returns the entry bits without which the access faults.
    pub(crate) fn needs(self) -> Bits {
        if self.fetch {
            Bits::READ | Bits::EXECUTE
        } else if self.write {
            Bits::READ | Bits::WRITE
        } else {
            Bits::READ
        }
    }
}

/// How a fault was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A zeroed frame was mapped.
    DemandZero,
    /// A read of untouched memory mapped the shared zero page.
    ZeroPage,
    /// A zeroed 2 MiB folio was mapped, or an object's huge page.
    Huge,
    /// A read of untouched memory mapped the shared huge zero page.
    HugeZeroPage,
    /// A zeroed folio of several pages was mapped by 4 KiB entries.
    Folio,
    /// A hugetlb page was mapped.
    Hugetlb,
    /// A page of an object was mapped.
    File,
    /// A store gave a private mapping a private page: a copy, or a zeroed one.
    Copy,
    /// The entry became writable; nothing else changed.
    WriteOnly,
    /// The entry became readable or executable; nothing else changed.
    ReadExec,
    /// The entry was a NUMA hint.
    Hint,
    /// The page was read from swap.
    SwapIn,
    /// The page was found in the swap cache.
    SwapCached,
    /// The entry permitted the access already.
    Spurious,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::DemandZero,
        Self::ZeroPage,
        Self::Huge,
        Self::HugeZeroPage,
        Self::Folio,
        Self::Hugetlb,
        Self::File,
        Self::Copy,
        Self::WriteOnly,
        Self::ReadExec,
        Self::Hint,
        Self::SwapIn,
        Self::SwapCached,
        Self::Spurious,
    ];

    /// Returns the name used in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DemandZero => "demand_zero",
            Self::ZeroPage => "zero_page",
            Self::Huge => "thp",
            Self::HugeZeroPage => "thp_zero_page",
            Self::Folio => "folio",
            Self::Hugetlb => "hugetlb",
            Self::File => "file",
            Self::Copy => "cow",
            Self::WriteOnly => "write_permission",
            Self::ReadExec => "read_exec_permission",
            Self::Hint => "numa_hint",
            Self::SwapIn => "swap_in",
            Self::SwapCached => "swap_cache",
            Self::Spurious => "spurious",
        }
    }

    /// Returns the row that counts faults of this kind.
    pub const fn row(self) -> Row {
        match self {
            Self::DemandZero => Row::FaultDemandZero,
            Self::ZeroPage => Row::FaultZeroPage,
            Self::Huge => Row::FaultHuge,
            Self::HugeZeroPage => Row::FaultHugeZeroPage,
            Self::Folio => Row::FaultFolio,
            Self::Hugetlb => Row::FaultHugetlb,
            Self::File => Row::FaultFile,
            Self::Copy => Row::FaultCopy,
            Self::WriteOnly => Row::FaultWriteOnly,
            Self::ReadExec => Row::FaultReadExec,
            Self::Hint => Row::FaultHint,
            Self::SwapIn => Row::FaultSwapIn,
            Self::SwapCached => Row::FaultSwapCached,
            Self::Spurious => Row::FaultSpurious,
        }
    }

    /// Whether the page was read from a swap device (`ru_majflt`).
    #[inline]
    pub const fn is_major(self) -> bool {
        matches!(self, Self::SwapIn)
    }
}

/// A fault: the address space and CPU, the area and page, and the access.
pub(crate) struct Fault<'a, M: Machine> {
    pub(crate) core: &'a Core<M>,
    pub(crate) cpu: CpuId,
    /// The areas of the address space, which are locked for reading.
    pub(crate) areas: &'a Areas<M>,
    pub(crate) area: &'a Area<M>,
    pub(crate) page: memwright_table::Page,
    pub(crate) access: Access,
}

impl<M: Machine> Clone for Fault<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Fault<'_, M> {}

impl<M: Machine> AddressSpace<M> {
    /// Resolves a page fault: afterwards the access succeeds, or faults again for another reason.
    ///
    /// # Errors
    /// See [`FaultError`]. Nothing visible to the program has changed. The caller waits on `WouldBlock` and frees
    /// memory on `OutOfMemory`; then it retries.
    ///
    /// # Locks
    /// Takes the lock of the areas: for reading, or for writing to expand a stack.
    pub fn fault(&self, address: VirtAddr, access: Access) -> Result<FaultKind, FaultError> {
        let core = &*self.core;
        let cpu = core.cpu();
        let mut outcome = core.fault(cpu, address, access);
        match outcome {
            Ok(kind) => core.memory.count_on(cpu, kind.row(), 1),
            Err(error) => outcome = core.failed_fault(cpu, address, access, error),
        }
        if core.memory.is_watched() {
            core.watched_fault(cpu, address, access, outcome);
        }
        outcome
    }
}

impl<M: Machine> Core<M> {
    /// Resolves a fault without counting it.
    // Inlined into `AddressSpace::fault`, the path of every fault of a program.
    #[inline(always)]
    pub(crate) fn fault(
        &self,
        cpu: CpuId,
        address: VirtAddr,
        access: Access,
    ) -> Result<FaultKind, FaultError> {
        let page = address.page();
        loop {
            let areas = self.areas.read(cpu);
            if let Some(area) = areas.map.find(page) {
                return Fault {
                    core: self,
                    cpu,
                    areas: &areas,
                    area,
                    page,
                    access,
                }
                .resolve();
            }
            drop(areas);
            self.grow_stack(page)?;
        }
    }

    /// Counts a fault that failed. If the hugetlb pool had no page, tries to resolve the fault by unmapping the page
    /// from child processes.
    #[cold]
    fn failed_fault(
        &self,
        cpu: CpuId,
        address: VirtAddr,
        access: Access,
        error: FaultError,
    ) -> Result<FaultKind, FaultError> {
        match error {
            // Not failed yet: the caller retries.
            FaultError::WouldBlock | FaultError::OutOfMemory => {}
            FaultError::Watched(_) => self.clear_left_marker(cpu, address.page()),
            FaultError::NoHugePage => return self.fault_in_exhausted_pool(cpu, address, access),
            FaultError::BeyondObject | FaultError::Io => {
                self.clear_left_marker(cpu, address.page());
                self.memory.count_on(cpu, Row::FaultFailed, 1);
            }
            FaultError::Guard | FaultError::Poison => {
                self.memory.count_on(cpu, Row::FaultFailed, 1);
            }
            FaultError::NoArea
            | FaultError::Denied
            | FaultError::Key(_)
            | FaultError::StackLimit => self.memory.count_on(cpu, Row::FaultRefused, 1),
        }
        Err(error)
    }

    /// Clears a write-protection marker on `page` that is left over although no userfaultfd write-protects the area any
    /// more (Linux 7.2 `mm/memory.c`, `pte_marker_clear`). Called if a userfaultfd is to be notified of the fault, or
    /// if the object cannot provide the page. Does not clear a marker that covers more than this page.
    fn clear_left_marker(&self, cpu: CpuId, page: memwright_table::Page) {
        let areas = self.areas.read(cpu);
        let flags = areas.map.find(page).map(Area::flags).unwrap_or_default();
        if !flags.contains(AreaFlags::UFFD_LEFT) || flags.contains(AreaFlags::UFFD_WP) {
            return;
        }
        let mut cursor = self.table.cursor(PageRange::single(page));
        let protection = Entry::marker(Marks::UFFD_WP);
        if cursor.size() == PageSize::Size4K && cursor.peek() == protection {
            cursor.unmark(Marks::UFFD_WP);
        }
    }

    /// Reports a fault to the trace sink, and the cache lines that it wrote to the lock statistics.
    #[cold]
    fn watched_fault(
        &self,
        cpu: CpuId,
        address: VirtAddr,
        access: Access,
        outcome: Result<FaultKind, FaultError>,
    ) {
        self.note_lines(cpu, address);
        self.memory.trace(|| Event::Fault {
            address,
            access,
            outcome,
            area: self.area_at(address),
        });
    }

    fn area_at(&self, address: VirtAddr) -> PageRange {
        let areas = self.areas.read(self.cpu());
        areas
            .map
            .find(address.page())
            .map_or(PageRange::default(), Area::range)
    }
}

impl<M: Machine> Fault<'_, M> {
    /// Resolves the fault in its area.
    #[inline(always)]
    pub(crate) fn resolve(self) -> Result<FaultKind, FaultError> {
        if !self.access.allowed_by(self.area.rights()) {
            return Err(self.denied());
        }
        if self.area.rights().key() != 0 {
            self.core.check_key(self.area.rights(), self.access)?;
        }
        if self.area.object().is_some() {
            self.resolve_object()
        } else {
            self.resolve_anonymous()
        }
    }

    /// Returns the error of an access that the area's rights do not permit. A protection key that denies it too takes
    /// precedence (Linux 7.2 `arch/x86/mm/fault.c`, `bad_area_access_from_pkeys`).
    #[cold]
    fn denied(self) -> FaultError {
        let key = self.core.check_key(self.area.rights(), self.access);
        key.err().unwrap_or(FaultError::Denied)
    }

    /// Attaches an anon_vma to the area, if it has none. Called before a private page is mapped in the area.
    #[inline]
    pub(crate) fn note_private(self) {
        // Test before storing: a store would take the cache line from the other CPUs at each fault.
        if !self.area.has_faulted() {
            self.prepare_anon_vma();
        }
    }

    #[cold]
    fn prepare_anon_vma(self) {
        let shared = self.areas.map.anon_vma_around(self.area);
        let anon_vma =
            shared.unwrap_or_else(|| AnonVma::founded(self.core.next_anon_vma(self.cpu)));
        self.area.anon_vma.found(anon_vma);
    }

    /// Checks an entry that maps no page. Returns the bits that a page mapped here inherits from the entry, or an error
    /// if no page can be mapped here now.
    pub(crate) fn check_absent(self, entry: Entry) -> Result<Bits, FaultError> {
        match entry {
            Entry::Empty => Ok(Bits::empty()),
            Entry::Marker(Marker { marks }) => {
                if marks.contains(Marks::GUARD) {
                    Err(FaultError::Guard)
                } else if marks.contains(Marks::POISON) {
                    Err(FaultError::Poison)
                } else {
                    // A page mapped here inherits the write protection, unless no userfaultfd write-protects the area
                    // any more.
                    let watched = self.area.flags().contains(AreaFlags::UFFD_WP);
                    Ok(if watched {
                        Bits::UFFD_WP
                    } else {
                        Bits::empty()
                    })
                }
            }
            // The page is being migrated, or another thread has just changed the entry: the caller retries the access.
            Entry::Migrating(_) | Entry::Present(_) | Entry::Swapped(_) => {
                Err(FaultError::WouldBlock)
            }
        }
    }

    /// Like `check_absent`, and also reports a missing page to the userfaultfd of the area and applies the area's
    /// memory policy.
    #[inline]
    pub(crate) fn check_fill(self, entry: Entry) -> Result<Bits, FaultError> {
        if self.area.flags().intersects(AreaFlags::ON_FILL) {
            self.check_watched_fill(entry)
        } else {
            self.check_absent(entry)
        }
    }

    /// The slow path of `check_fill`, for areas with a userfaultfd or a memory policy. Reports a missing page of
    /// anonymous memory to the userfaultfd that is registered for missing pages of the area. A page under a
    /// write-protection marker is mapped write-protected, even for a store: the store faults again on the present page,
    /// and that fault is reported to the userfaultfd (Linux 7.2 `mm/memory.c`, `pte_marker_handle_uffd_wp`). In
    /// asynchronous mode no store is reported, so the store's page is mapped without protection.
    #[cold]
    fn check_watched_fill(self, entry: Entry) -> Result<Bits, FaultError> {
        let inherited = self.check_absent(entry)?;
        let flags = self.area.flags();
        if flags.contains(AreaFlags::UFFD_MISSING) && self.area.object().is_none() {
            if self.access.write {
                // Linux creates the anon_vma before it reports the fault (`do_anonymous_page`).
                self.note_private();
            }
            return Err(FaultError::Watched(WatchedFault::Missing));
        }
        if inherited.is_empty() || !self.access.write {
            self.place();
            return Ok(inherited);
        }
        self.place();
        // The store faults again on the present, write-protected page, and that fault is reported to the userfaultfd.
        let told = flags.contains(AreaFlags::UFFD_WP) && !flags.contains(AreaFlags::UFFD_ASYNC);
        Ok(if told { inherited } else { Bits::empty() })
    }
}
