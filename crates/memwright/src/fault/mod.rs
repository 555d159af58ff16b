//! The page fault handler, one file per outcome.
//!
//! The handler looks up the area with the areas locked for reading, and then the entry under the lock of one page
//! table. It changes the entry so that the access succeeds. If the area maps an object, the handler gets the page from
//! the object without the page-table lock, then takes the lock and checks the entry again.

pub(crate) mod anon;
#[cfg(feature = "uffd")]
pub(crate) mod armed;
pub(crate) mod attempt;
pub(crate) mod copy;
pub(crate) mod file;
#[cfg_attr(not(feature = "huge"), path = "folio_off.rs")]
pub(crate) mod folio;
pub(crate) mod force;
#[cfg(feature = "numa")]
pub(crate) mod hint;
#[cfg_attr(not(feature = "huge"), path = "huge_off.rs")]
pub(crate) mod huge;
#[cfg_attr(not(feature = "hugetlb"), path = "hugetlb_off.rs")]
pub(crate) mod hugetlb;
#[cfg(not(feature = "numa"))]
mod numa_off;
pub(crate) mod object_entry;
#[cfg(feature = "numa")]
pub(crate) mod place;
pub(crate) mod present;
#[cfg_attr(not(feature = "huge"), path = "shared_folio_off.rs")]
pub(crate) mod shared_folio;
pub(crate) mod stack;
#[cfg(feature = "swap")]
pub(crate) mod swap;
#[cfg(feature = "swap")]
pub(crate) mod swap_around;
#[cfg(feature = "swap")]
pub(crate) mod swap_off;
#[cfg_attr(not(feature = "swap"), path = "swap_wait_off.rs")]
pub(crate) mod swap_wait;
#[cfg(feature = "swap")]
pub(crate) mod swapped_page;
#[cfg(not(feature = "uffd"))]
mod uffd_off;
#[cfg_attr(not(feature = "huge"), path = "whole_folio_off.rs")]
mod whole_folio;

use memwright_table::{Architecture, CpuId, Invalidation, Machine, Page, PageRange, VirtAddr};

use crate::fault::attempt::Fault;
use crate::fault::swap_wait::wait_a_moment;
use crate::mm::core::Core;
use crate::mm::space::{AddressSpace, Area};
use crate::types::access::{Access, FaultKind};
use crate::types::error::FaultError;
use crate::types::purpose::{Finished, Purpose};
use crate::types::stats::Row;
use crate::types::trace::Event;

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
        if !M::Arch::FAULT_DROPS_STALE {
            core.drop_stale(address.page());
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
    #[cfg_attr(feature = "inline", inline(always))]
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

    /// Drops what this CPU has cached for `page`, so that the instruction that faulted uses the entry.
    pub(super) fn drop_stale(&self, page: Page) {
        let machine = self.memory.frames().machine();
        machine.invalidate_local(&Invalidation::page(page));
    }

    /// Handles the error of a fault. If the fault began to read its page from swap, completes the fault. If the hugetlb
    /// pool had no page for the fault, tries to unmap the page from child processes and repeats the fault. Counts any
    /// other failed fault, unless the caller retries it.
    #[cold]
    fn failed_fault(
        &self,
        cpu: CpuId,
        address: VirtAddr,
        access: Access,
        error: FaultError,
    ) -> Result<FaultKind, FaultError> {
        match error {
            FaultError::WouldBlock => return self.failed_wait(address, access),
            // Not counted as failed: the caller retries.
            FaultError::OutOfMemory | FaultError::Watched(_) => {}
            FaultError::NoHugePage => return self.fault_in_exhausted_pool(cpu, address, access),
            FaultError::BeyondObject
            | FaultError::Io
            | FaultError::Guard
            | FaultError::Poison(_) => {
                self.memory.count_on(cpu, Row::FaultFailed, 1);
            }
            FaultError::NoArea
            | FaultError::Denied
            | FaultError::Key(_)
            | FaultError::StackLimit => self.memory.count_on(cpu, Row::FaultRefused, 1),
        }
        Err(error)
    }

    /// Resolves a fault that has returned [`FaultError::WouldBlock`]: completes the read that the fault began, and
    /// repeats the fault. If `awaits` is true, also waits for a read by another thread. Does not count the fault.
    ///
    /// # Errors
    /// `WouldBlock` if the page is busy for another reason; otherwise the errors of a fault.
    #[cold]
    pub(crate) fn finish_fault(
        &self,
        address: VirtAddr,
        access: Access,
        awaits: bool,
    ) -> Result<FaultKind, FaultError> {
        let (page, purpose) = (address.page(), Purpose::Access(access));
        let mut has_read = false;
        loop {
            match self.finish_reads(page, purpose) {
                Finished::Over(outcome) => return outcome,
                Finished::Again => has_read = true,
                Finished::Nothing if awaits && self.is_in_swap(page) => {
                    wait_a_moment::<M::Threads>();
                }
                Finished::Nothing => return Err(FaultError::WouldBlock),
            }
            match self.fault(self.cpu(), address, access) {
                Ok(_) if has_read => return Ok(FaultKind::SwapIn),
                Err(FaultError::WouldBlock) => {}
                outcome => return outcome,
            }
        }
    }

    /// Completes a fault that began to read its page from a swap device, and counts it.
    fn failed_wait(&self, address: VirtAddr, access: Access) -> Result<FaultKind, FaultError> {
        let outcome = self.finish_fault(address, access, false);
        // The thread may have changed CPUs while it waited.
        let cpu = self.cpu();
        match outcome {
            Ok(kind) => self.memory.count_on(cpu, kind.row(), 1),
            Err(FaultError::WouldBlock) => {}
            Err(error) => return self.failed_fault(cpu, address, access, error),
        }
        outcome
    }

    /// Sends a fault and its outcome to the trace sink, and adds the cache lines that the fault wrote to the lock
    /// statistics.
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
    #[cfg_attr(feature = "inline", inline(always))]
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

    /// Returns the error of an access that the rights of the area do not permit. If a protection key also denies the
    /// access, returns the error of the key (Linux 7.2 `arch/x86/mm/fault.c`, `bad_area_access_from_pkeys`).
    #[cold]
    fn denied(self) -> FaultError {
        let key = self.core.check_key(self.area.rights(), self.access);
        key.err().unwrap_or(FaultError::Denied)
    }
}
