//! Address spaces: one file per operation.

mod access;
mod advise;
mod areas;
pub(crate) mod check;
mod clear;
mod collapse;
mod collapse_object;
mod core;
mod discard;
mod exec_gain;
mod flags;
mod fork;
mod hugetlb;
mod keys;
mod lock;
mod map;
mod populate;
mod protect;
mod query;
mod reap;
mod register;
mod remap;
mod resident;
mod seal;
mod split;
mod survey;
mod sync;
mod unmap;
mod zap;

use memwright_table::{Frame, Machine, OutOfMemory, Shared, Table, VirtAddr};

use alloc::sync::Arc;

use crate::huge::HugeRefusal;
use crate::memory::Memory;

pub use self::advise::{Advice, Advised};
pub use self::areas::{Backing, Limits, LockFuture, Totals};
pub use self::exec_gain::ExecGain;
pub use self::map::{MapKind, MapRequest, Placement};
pub use self::populate::{Mapped, ToPopulate};
pub use self::remap::RemapRequest;
pub use self::split::{FolioSplit, FolioSplits};
pub use self::survey::{Forget, Sight};
pub use self::sync::SyncFlags;
pub use collapse::Scanned;

pub(crate) use self::areas::{Areas, CutError, cuts_hugetlb};
pub(crate) use self::core::{Core, access_bits};
pub(crate) use self::flags::Holes;
pub(crate) use self::register::Spaces;
pub(crate) use self::zap::Taken;

/// Areas between two scheduling points of an operation on many.
pub(crate) const AREAS: u32 = 64;
/// Pages between two scheduling points, where each costs as much as a fault.
pub(crate) const PAGES: u32 = 64;

/// An area of an address space.
pub type Area<M> = crate::vma::Area<Backing<M>>;

/// Where areas may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Nothing is mapped below (`vm.mmap_min_addr`).
    pub lowest: VirtAddr,
    /// Room without a hint is searched downwards from here.
    pub mmap_top: VirtAddr,
    /// Nothing is mapped from here on.
    pub highest: VirtAddr,
}

/// The memory of a program: its areas and its page table.
///
/// Every operation takes `&self` and locks for itself: for reading where only pages change (a fault,
/// `MADV_DONTNEED`, populating), for writing where areas change. No lock is held when one returns, and
/// none waits; an object that would make it wait is reported, and the caller waits and retries.
///
/// Dropping it unmaps everything. No CPU may have its table loaded then.
pub struct AddressSpace<M: Machine> {
    pub(crate) core: Shared<Core<M>>,
}

impl<M: Machine> AddressSpace<M> {
    /// An empty address space. The kernel half of its table is that of `template`.
    ///
    /// # Errors
    /// No frame for the table or no heap for the locks.
    pub fn new(
        memory: Arc<Memory<M>>,
        layout: Layout,
        template: Option<Frame>,
    ) -> Result<Self, OutOfMemory> {
        let core = Core::new(memory, layout, template)?;
        let core = Shared::try_new(core)?;
        core.memory.spaces().enter(&core)?;
        Ok(Self { core })
    }

    /// The page table, to load it.
    pub fn table(&self) -> &Table<M> {
        &self.core.table
    }

    /// What all address spaces share.
    pub fn memory(&self) -> &Arc<Memory<M>> {
        &self.core.memory
    }

    /// Where areas may be.
    pub fn layout(&self) -> Layout {
        self.core.layout
    }

    /// What the process refuses of huge pages.
    pub fn huge_refusal(&self) -> HugeRefusal {
        self.core.huge_refusal()
    }

    /// Sets what the process refuses of huge pages from now on; those that it has stay.
    pub fn refuse_huge(&self, refusal: HugeRefusal) {
        self.core.refuse_huge(refusal);
    }

    /// Sets the limits that later operations obey.
    pub fn set_limits(&self, limits: Limits) {
        self.core.areas.write().limits = limits;
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.core.areas.read(self.core.cpu()).limits
    }
}

impl<M: Machine> Drop for AddressSpace<M> {
    fn drop(&mut self) {
        self.clear();
        self.core.memory.spaces().leave(&self.core);
    }
}
