//! Address spaces. The operations are in other folders.

use alloc::sync::Arc;
use memwright_table::{Architecture, HasTable, Machine, OutOfMemory, Shared, Table};

use crate::mm::areas::Limits;
use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::mm::theme::HugePages;
use crate::types::error::SpaceError;
use crate::types::huge::HugeRefusal;
use crate::types::layout::Layout;

pub use crate::mm::areas::Area;

/// The number of areas between two scheduling points of an operation on many areas.
pub(crate) const AREAS: u32 = 64;

/// The number of pages between two scheduling points of an operation that spends as much on each page as a fault.
pub(crate) const PAGES: u32 = 64;

/// The memory of a process: its areas and its page table.
///
/// Every operation takes `&self` and does its own locking. Most operations that change only pages (a fault,
/// `MADV_DONTNEED`, populating) take the lock of the areas shared. Operations that change areas, or replace or free
/// page tables, take it exclusively. No lock is held when an operation returns, and no operation sleeps: if an object
/// would have to wait, the operation returns an error, and the caller waits and retries. Only a swap device may sleep,
/// in [`SwapDevice::complete`](crate::SwapDevice::complete), before which a swap-in releases the locks.
///
/// Dropping an address space unmaps everything. The caller must ensure that no CPU has its page table loaded by then.
pub struct AddressSpace<M: Machine> {
    pub(crate) core: Shared<Core<M>>,
}

impl<M: Machine> AddressSpace<M> {
    /// Creates an empty address space. The kernel half of its page table is copied from the machine's template, as in
    /// [`Table::new`].
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn new(memory: Arc<Memory<M>>, layout: Layout) -> Result<Self, SpaceError> {
        layout
            .check(M::Arch::USER.end.address())
            .map_err(SpaceError::BadLayout)?;
        Ok(Self::forked(memory, layout, None)?)
    }

    /// Creates an empty address space, as a child of `parent` if `parent` is given.
    pub(crate) fn forked(
        memory: Arc<Memory<M>>,
        layout: Layout,
        parent: Option<&Core<M>>,
    ) -> Result<Self, OutOfMemory> {
        let core = Core::new(memory, layout)?;
        let core = Shared::try_new(core)?;
        core.memory.spaces().enter(&core, parent)?;
        Ok(Self { core })
    }

    /// Returns the page table. A CPU loads it by [`Loaded`](memwright_table::Loaded).
    pub fn table(&self) -> &Table<M> {
        &self.core.table
    }

    /// Returns the state that all address spaces share.
    pub fn memory(&self) -> &Arc<Memory<M>> {
        &self.core.memory
    }

    /// Returns the addresses at which areas may be mapped.
    pub fn layout(&self) -> Layout {
        self.core.layout
    }

    /// Sets the limits that later operations check.
    pub fn set_limits(&self, limits: Limits) {
        self.core.areas.write().limits = limits;
    }

    /// Returns the current limits.
    pub fn limits(&self) -> Limits {
        self.core.areas.read(self.core.cpu()).limits
    }
}

impl<M: Machine> HasTable for AddressSpace<M> {
    type Machine = M;

    fn table(&self) -> &Table<M> {
        &self.core.table
    }
}

impl<M: Machine> HugePages<'_, M> {
    /// Returns which huge pages the process opts out of.
    pub fn refusal(&self) -> HugeRefusal {
        self.space.core.huge_refusal()
    }

    /// Sets which huge pages the process opts out of. Existing huge pages stay.
    pub fn refuse(&self, refusal: HugeRefusal) {
        self.space.core.refuse_huge(refusal);
    }
}
