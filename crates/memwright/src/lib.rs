//! A memory manager that behaves like Linux's, for kernels and virtual machine monitors that are not Linux:
//! areas (VMAs), page faults, copy-on-write, protection changes, fork, `mremap`, `madvise` and `mlock`.
//!
//! It is `no_std`, has no `unsafe` code, and depends on neither hardware nor a system call interface.
//! Hardware is behind [`memwright_table::Machine`]. An embedder turns traps into calls of
//! [`AddressSpace::fault`] and system calls into calls of the other methods of [`AddressSpace`].
//!
//! # An address space in a few lines
//!
//! On a simulated machine, whose physical memory is a heap allocation of the host process:
//!
//! ```
//! use std::sync::Arc;
//! use memwright::{
//!     Access, AddressSpace, FaultKind, Layout, MapRequest, Memory, Policy, Rights, Row,
//! };
//! use memwright_sim::{Arch, MachineOptions, SimulatedMachine};
//!
//! let machine = SimulatedMachine::new(MachineOptions::default());
//! let memory = Arc::new(Memory::new(machine.frames(), Policy::default())?);
//! let layout = Layout::of::<Arch>();
//! let parent = AddressSpace::new(memory.clone(), layout)?;
//!
//! // Four pages of private anonymous memory; the first store to one faults.
//! let rw = Rights::READ | Rights::WRITE;
//! let address = parent.map(&MapRequest::anonymous(4 * 4096, rw)).unwrap();
//! assert_eq!(parent.fault(address, Access::WRITE), Ok(FaultKind::DemandZero));
//! parent.write(address, b"hello").unwrap();
//!
//! // A child shares the page until one of the two writes it.
//! let child = parent.fork().unwrap();
//! assert_eq!(child.fault(address, Access::WRITE), Ok(FaultKind::Copy));
//! child.write(address, b"HELLO").unwrap();
//! let mut bytes = [0; 5];
//! parent.read(address, &mut bytes).unwrap();
//! assert_eq!(&bytes, b"hello");
//!
//! // After a change to read-only and back, the child's page is writable at once: the next store does not fault.
//! child.protect(address, 4096, Rights::READ).unwrap();
//! child.protect(address, 4096, rw).unwrap();
//! assert_eq!(memory.account().count(Row::WriteFaultsAvoided), 1);
//!
//! child.audit().unwrap();
//! parent.audit().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Source tree
//!
//! Each folder uses only the folders above it in this list. Operations are methods of [`AddressSpace`], of its themes
//! ([`theme`]), and of [`Memory`]. A method is in the folder of the operation that it performs, which need not be the
//! folder of the type.
//!
//! ```text
//! types/     values that all layers share: errors, account rows, trace events, policies, settings of huge pages
//! vma/       the map of areas: split, merge, free ranges; independent of page tables
//!            writable.rs, the rule: may this entry be writable now?
//! store/     storage of the pages of an object: a radix tree, slots, placement, limits
//! swap/      swap devices, slots, the swap cache
//! mm/        the state: Memory (of a machine), AddressSpace and its Core, the trait Object and its mappings, commit
//!            charges, KSM's lists; and operations that only read or count
//! range/     operations on the entries of a range, or on all entries that map a page: reverse mapping, zapping, flags
//! hugetlb/   areas and files of the hugetlb pool
//! ksm/       KSM: merging pages with equal contents into one frame
//! numa/      NUMA policies, migration, NUMA balancing
//! reclaim/   selecting pages to reclaim, swapping out anonymous and shared memory, writing back files
//! shmem/     shared memory and the files of a tmpfs; their swap-out and swap-in
//! fault/     the page fault handler
//! huge/      collapsing small pages into huge pages, splitting folios
//! uffd/      userfaultfd
//! track/     write tracking: soft-dirty and PAGEMAP_SCAN
//! ops/       the operations of an address space: map, unmap, protect, remap, fork, advise, lock, ...
//! audit.rs   consistency checks
//! ```
//!
//! # Features
//!
//! All features are on by default. A kernel that does without a feature is smaller. The operations of a feature that is
//! off stay in the interface, but do nothing or fail.
//!
//! | Feature | Without it |
//! |---|---|
//! | `huge` | faults map pages of 4 KiB only, and `MADV_HUGEPAGE` and `MADV_COLLAPSE` are refused |
//! | `hugetlb` | a [`HugeFile`](object::HugeFile) has no pages |
//! | `inline` | the optimisation level decides which hot paths are inlined; nothing else changes |
//! | `merge` | KSM merges no pages, and `MADV_MERGEABLE` is refused |
//! | `numa` | no area has a NUMA policy ([`BindError::Unsupported`]), no page is migrated ([`Unmoved::Unmovable`]) |
//! | `objects` | no area maps an object or device memory ([`MapError::Unsupported`]) |
//! | `reclaim` | no page is reclaimed, and `MADV_FREE` frees pages at once |
//! | `share` | a fork copies all page tables, whatever the policy is |
//! | `swap` | no swap device can be added ([`Memory::add_swap`] returns `None`), and no anonymous page is swapped out |
//! | `trace` | no event is sent to a [`TraceSink`], and no lock statistics are taken |
//! | `tracking` | [`Tracking::scan`](theme::Tracking::scan) fails, and every page counts as soft-dirty |
//! | `uffd` | no memory can be registered with a userfaultfd ([`uffd::WatchError::Unsupported`]) |
//!
//! # How a fault is handled
//!
//! ```text
//! trap ──> AddressSpace::fault(address, access)
//!            areas.read(cpu) ── no area ──> fault/stack.rs: expand the stack and look up again, or refuse
//!            area: does it permit the access? ── no ──> refused
//!            ├─ anonymous ─> cursor ─┬─ absent, store ─> fault/anon.rs     a zeroed frame, exclusive
//!            │                       ├─ absent, load  ─> fault/anon.rs     the shared zero page
//!            │                       ├─ swapped out ───> fault/swap.rs     read, reused or copied
//!            │                       └─ present ───────> fault/present.rs
//!            └─ an object ─> frame from the object ─> cursor ─> fault/file.rs   mapped, or copied
//!          fault/present.rs:  access already permitted  ─> flush locally, retry  (spurious)
//!                             writable permits it        ─> grant                 (write permission only)
//!                             the only reference        ─> mark exclusive, grant (write permission only)
//!                             otherwise ─> fault/copy.rs: copy, clear the entry, flush, set the new entry
//! ```
//!
//! Code that maps a page or changes its protection calls [`writable`]; no state records that a page was writable
//! before. For private memory, the decision depends on the exclusive bit of the page-table entry. A new anonymous page
//! is exclusive. Fork clears the bit in the entries of parent and child with both page tables locked. An entry becomes
//! exclusive again only if it holds the sole reference of any kind to the frame.
//!
//! # Lock order, outermost first
//!
//! ```text
//! Scan            a scan of the memory of all address spaces
//! └ Space         the areas of an address space: read by faults and madvise, written by changes of areas
//! └ SpaceChild    the child's areas, during fork
//!   └ ObjectRegistry   which address spaces map an object; which objects have reclaimable pages
//!     └ Object         the pages of an object
//!       └ Table        one page table, held by a cursor
//!         └ TableChild the child's page table, during fork
//!           └ Swap       the slots of swap devices; the data of one device
//!             └ FrameCache, Frames   the frame allocator
//! ```
//!
//! No lock is held when an operation returns or while a thread sleeps. Truncation walks the address spaces of an object
//! without the object's locks. A fault that got a frame from the object before the truncation therefore checks the
//! generation of [`object::Mappings`] under the page-table lock, and restarts if the generation has advanced.
//!
//! # Failure
//!
//! Any allocation may fail. An operation reserves the memory that it needs before it changes anything. If it
//! nevertheless fails half-way, it leaves the state that Linux leaves. `tests/scenarios/failures.rs` makes each
//! allocation of a script fail in turn.
//!
//! # Linux sources, files here, and tests
//!
//! Linux 7.2. Tests are modules of `tests/scenarios`, except the two files in `vma/`.
//!
//! | Operation | Linux | Here | Test |
//! |---|---|---|---|
//! | `mmap` | mm/mmap.c, mm/vma.c | ops/map.rs | limits |
//! | `munmap` | mm/vma.c | ops/unmap.rs | limits |
//! | `mprotect` | mm/mprotect.c | ops/protect.rs | protect |
//! | writability of an entry | mm/mprotect.c | vma/writable.rs | vma/writable.rs |
//! | `mremap` | mm/mremap.c | ops/remap.rs | remap |
//! | `madvise` | mm/madvise.c | ops/advise.rs | advise |
//! | splits through debugfs | mm/huge_memory.c, mm/migrate.c | huge/split.rs | split |
//! | `mincore` | mm/mincore.c | ops/resident.rs | locks |
//! | `mlock` family | mm/mlock.c | ops/lock.rs | locks |
//! | soft-dirty | fs/proc/task_mmu.c | track/soft_dirty.rs | track |
//! | `msync` | mm/msync.c | ops/sync.rs | locks, objects |
//! | `fork` | kernel/fork.c, mm/memory.c | ops/fork.rs | fork |
//! | areas | mm/vma.c, mm/vma.h | vma/ | vma/tests.rs |
//! | unmapped areas | mm/vma.c | vma/room.rs | vma/tests.rs |
//! | anonymous fault | mm/memory.c | fault/anon.rs | faults |
//! | write-protect fault | mm/memory.c | fault/present.rs, fault/copy.rs | fork, objects |
//! | swap-in, swap-out | mm/memory.c, mm/vmscan.c, mm/swapfile.c | fault/swap.rs, reclaim/, swap/ | swap |
//! | placement, migration | mm/mempolicy.c, mm/migrate.c | numa/ | numa |
//! | file fault, fault-around | mm/memory.c, mm/filemap.c | fault/file.rs | objects |
//! | stack growth | mm/vma.c | fault/stack.rs | faults |
//! | shared memory, tmpfs pages | mm/shmem.c | shmem/mod.rs | objects |
//! | swap of shared memory | mm/shmem.c, mm/rmap.c | shmem/swap.rs, reclaim/out_object.rs, shmem/unmapped.rs | swap_shared, swap_objects |
//! | hugetlb | mm/hugetlb.c | hugetlb/, mm/huge_file.rs, fault/hugetlb.rs | hugetlb |
//! | truncation | mm/memory.c, mm/truncate.c | range/mappings.rs, range/zap.rs | objects |
//! | overcommit mode 0 | mm/util.c | mm/commit.rs | limits |
//!
//! Deliberate differences: a protection change that permits writes makes entries writable even if the page is
//! clean; permission changes that only add rights send no shootdown; a page that was not accessed since it
//! was mapped is protected or unmapped without a TLB flush.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(
    not(all(
        feature = "huge",
        feature = "hugetlb",
        feature = "merge",
        feature = "numa",
        feature = "objects",
        feature = "reclaim",
        feature = "share",
        feature = "swap",
        feature = "trace",
        feature = "tracking",
        feature = "uffd"
    )),
    allow(dead_code, reason = "what only a feature that is off uses")
)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// Tests the examples in `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FirstPage;

/// Tests the examples in `docs/embedding.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

mod audit;
mod fault;
#[cfg_attr(not(feature = "huge"), path = "huge/off.rs")]
mod huge;
#[cfg_attr(not(feature = "hugetlb"), path = "hugetlb/off.rs")]
mod hugetlb;
#[cfg_attr(not(feature = "merge"), path = "ksm/off.rs")]
mod ksm;
mod mm;
#[cfg_attr(not(feature = "numa"), path = "numa/off.rs")]
mod numa;
mod ops;
mod range;
#[cfg_attr(not(feature = "reclaim"), path = "reclaim/off.rs")]
mod reclaim;
mod shmem;
mod store;
#[cfg_attr(not(feature = "swap"), path = "swap/off.rs")]
pub mod swap;
#[cfg_attr(not(feature = "tracking"), path = "track/off.rs")]
pub mod track;
mod types;
#[cfg_attr(not(feature = "uffd"), path = "uffd/off.rs")]
pub mod uffd;
mod vma;

pub use audit::AuditError;
pub use mm::areas::{Backing, Limits, LockFuture, Totals};
pub use mm::commit::{Commit, Overcommit, OvercommitMode};
pub use mm::memory::Memory;
pub use mm::merging::Merging;
pub use mm::space::{AddressSpace, Area};
pub use ops::advise::Advised;
pub use ops::map::{MapKind, MapRequest, Placement};
pub use ops::populate::{Mapped, ToPopulate};
pub use ops::remap::RemapRequest;
pub use ops::survey::{Forget, Sight};
pub use ops::sync::SyncFlags;
pub use reclaim::effort::Effort;
pub use shmem::unmapped::ObjectPlace;
pub use swap::Swap;
pub use swap::device::{
    DeviceError, DeviceUse, Direction, Submission, SwapDevice, Ticket, Transfer,
};
pub use types::access::{Access, FaultKind};
pub use types::advice::Advice;
pub use types::area_name::AreaName;
pub use types::error::{
    AdviseError, Awaited, FaultError, ForkError, Limit, LockError, MapError, NameError,
    ObjectError, PopulateError, ProtectError, RemapError, SealError, SpaceError, SyncError,
    UnmapError,
};
pub use types::faulted_in::{FaultSink, FaultedIn};
pub use types::folio_orders::{FolioOrders, LARGEST_ORDER, SMALLEST_ORDER, folio_around};
pub use types::folio_split::{FolioSplit, FolioSplits, Scanned};
pub use types::huge::{HugeMode, HugeRefusal, SharedMode, SharedSetting, SharedSizeMode, SizeMode};
pub use types::huge_settings::{HugeSettings, ScanSettings};
pub use types::layout::{Layout, LayoutError};
pub use types::mdwe::ExecGain;
pub use types::memcg::{MAX_MEMCGS, Memcg, NoMemcg};
pub use types::merge::{MergeCounts, MergeSettings, MergedPages};
pub use types::migration::{BindError, Moved, Moving, Unmoved};
pub use types::numa_policy::{PlaceMode, PlacePolicy, PolicyId};
pub use types::policy::{ForkTables, Policy, PolicyError, SwapInReuse, Track, WriteUpgrade};
pub use types::rights::Rights;
pub use types::size_settings::{SizeCounts, SizeSettings};
pub use types::stats::{Account, Definition, ROWS, Row, Source, Value};
pub use types::trace::{Event, TraceSink};
pub use vma::area::{Area as AreaOf, AreaFlags, Backed};
pub use vma::writable::{Verdict, View, writable};

/// The operations of an address space that a kernel does not need at first, by theme.
pub mod theme {
    pub use crate::mm::theme::{
        HugePages, Ksm, Numa, ProtectionKeys, Residency, Tracking, Uffd, Usage,
    };
}

/// Objects that areas can map, and the types from which objects are built.
pub mod object {
    pub use crate::mm::huge_file::{HUGE_BYTES, HugeFile, HugeView, PrivateHuge};
    pub use crate::mm::mappings::{CleanOutcome, Mappings};
    pub use crate::mm::object::{
        CachedRun, CollapseError, CollapseLimits, Object, ObjectIdentity, Put,
    };
    pub use crate::mm::subpool::HugeSubpool;
    pub use crate::shmem::Shmem;
    pub use crate::store::cluster::Cluster;
    pub use crate::store::leaving::{Leaving, Left};
    pub use crate::store::pages::{Pages, Stored};
    pub use crate::store::room::Room;
    pub use crate::swap::asker::Asker;
    pub use crate::types::error::ObjectError;
}

/// Errors, one small enum per operation.
pub mod error {
    pub use crate::types::error::{FillError, MoveError, WatchError};
}
