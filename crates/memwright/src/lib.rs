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
//! use memwright_sim::{MachineOptions, SimulatedMachine};
//! use memwright_table::VirtAddr;
//!
//! let machine = SimulatedMachine::new(MachineOptions::default());
//! let memory = Arc::new(Memory::new(machine.frames(), Policy::default())?);
//! let layout = Layout {
//!     lowest: VirtAddr::new(0x1_0000),
//!     mmap_top: VirtAddr::new(0x7fff_f000_0000),
//!     highest: VirtAddr::USER_END,
//! };
//! let parent = AddressSpace::new(memory.clone(), layout, None)?;
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
//! # Ok::<(), memwright_table::OutOfMemory>(())
//! ```
//!
//! # Source tree
//!
//! ```text
//! memory.rs    Memory, shared by all address spaces: frames, zero page, commit charges, policies, counters
//! space/       AddressSpace, one file per operation
//! vma/         the map of areas: split, merge, free ranges; pure, independent of page tables
//! fault/       the page fault handler, one file per outcome
//! writable.rs  the rule: may this entry be writable now?
//! object/      what areas map other than anonymous memory: the trait, sparse pages, shared memory
//! merge/       KSM: pages with equal contents share one frame
//! huge/        transparent huge pages and large folios: eligibility, sizes, settings
//!              (hugetlb: object/huge_file.rs, fault/hugetlb.rs, space/hugetlb.rs)
//! commit.rs    committed memory         policy.rs  choices for experiments
//! stats.rs     event counters           trace.rs   events as JSON
//! track/       write tracking: soft-dirty and PAGEMAP_SCAN
//! numa/        placement on NUMA nodes, migration, NUMA balancing
//! swap/        swap devices, slots, swap cache, reclaim
//! uffd/        userfaultfd
//! audit.rs     consistency checks       error.rs   one small enum per operation
//! ```
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
//!                             writable says yes         ─> grant                 (write permission only)
//!                             the only reference        ─> mark exclusive, grant (write permission only)
//!                             otherwise ─> fault/copy.rs: copy, clear the entry, flush, set the new entry
//! ```
//!
//! Every path that leaves a page mapped calls [`writable::writable`]; no state records that a page was writable before.
//! Exclusivity, the bit that decides for private memory, is stored in the page-table entry. A new anonymous page is
//! exclusive. Fork clears the bit in the entries of parent and child with both page tables locked. An entry becomes
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
//! No lock is held when an operation returns or while a thread sleeps. Truncation walks the address spaces of
//! an object without the object's locks. A fault that got a frame from the object before the truncation
//! therefore checks the generation of [`object::Mappings`] under the page-table lock, and restarts if it has
//! advanced.
//!
//! # Failure
//!
//! Any allocation may fail. An operation reserves the memory that it needs before it changes anything. If it
//! nevertheless fails half-way, it leaves the state that Linux leaves. `tests/scenarios/failures.rs` makes each
//! allocation of a script fail in turn.
//!
//! # Linux sources, files here, and tests
//!
//! Linux 7.2. Tests are modules of `tests/scenarios`, except `vma/tests.rs`.
//!
//! | Operation | Linux | Here | Test |
//! |---|---|---|---|
//! | `mmap` | mm/mmap.c, mm/vma.c | space/map.rs | limits |
//! | `munmap` | mm/vma.c | space/unmap.rs | limits |
//! | `mprotect` | mm/mprotect.c | space/protect.rs | protect |
//! | writability of an entry | mm/mprotect.c | writable.rs | writable.rs |
//! | `mremap` | mm/mremap.c | space/remap.rs | remap |
//! | `madvise` | mm/madvise.c | space/advise.rs | advise |
//! | splits through debugfs | mm/huge_memory.c, mm/migrate.c | space/split.rs | split |
//! | `mincore` | mm/mincore.c | space/resident.rs | locks |
//! | `mlock` family | mm/mlock.c | space/lock.rs | locks |
//! | soft-dirty | fs/proc/task_mmu.c | track/soft_dirty.rs | track |
//! | `msync` | mm/msync.c | space/sync.rs | locks, objects |
//! | `fork` | kernel/fork.c, mm/memory.c | space/fork.rs | fork |
//! | areas | mm/vma.c, mm/vma.h | vma/ | vma/tests.rs |
//! | unmapped areas | mm/vma.c | vma/room.rs | vma/tests.rs |
//! | anonymous fault | mm/memory.c | fault/anon.rs | faults |
//! | write-protect fault | mm/memory.c | fault/present.rs, fault/copy.rs | fork, objects |
//! | swap-in, swap-out | mm/memory.c, mm/vmscan.c, mm/swapfile.c | fault/swap.rs, swap/ | swap |
//! | placement, migration | mm/mempolicy.c, mm/migrate.c | numa/ | numa |
//! | file fault, fault-around | mm/memory.c, mm/filemap.c | fault/file.rs | objects |
//! | stack growth | mm/vma.c | fault/stack.rs | faults |
//! | shared memory, tmpfs pages | mm/shmem.c | object/shmem.rs | objects |
//! | swap of shared memory | mm/shmem.c, mm/rmap.c | swap/object.rs, swap/out_object.rs, swap/unmapped.rs, object/store.rs | swap_shared, swap_objects |
//! | hugetlb | mm/hugetlb.c | object/huge_file.rs, fault/hugetlb.rs | hugetlb |
//! | truncation | mm/memory.c, mm/truncate.c | object/mappings.rs, space/zap.rs | objects |
//! | overcommit mode 0 | mm/util.c | commit.rs | limits |
//!
//! Deliberate differences: a protection change that permits writes makes entries writable even if the page is
//! clean; permission changes that only add rights send no shootdown; a page that was not accessed since it
//! was mapped is protected or unmapped without a TLB flush.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod audit;
pub mod commit;
pub mod error;
pub mod fault;
pub mod huge;
pub mod memory;
pub mod merge;
pub mod numa;
pub mod object;
pub mod policy;
mod settled;
pub mod space;
pub mod stats;
pub mod swap;
pub mod trace;
pub mod track;
pub mod uffd;
pub mod vma;
pub mod writable;

pub use audit::AuditError;
pub use commit::{Commit, Overcommit, OvercommitMode};
pub use error::{
    AdviseError, Awaited, FaultError, ForkError, Limit, LockError, MapError, ObjectError,
    PopulateError, ProtectError, RemapError, SealError, SyncError, UnmapError,
};
pub use fault::{Access, FaultKind, FaultSink, FaultedIn};
pub use huge::{
    FolioOrders, HugeMode, HugeRefusal, HugeSettings, LARGEST_ORDER, SMALLEST_ORDER, SharedMode,
    SharedSetting, SharedSizeMode, SizeCounts, SizeMode, SizeSettings,
};
pub use memory::Memory;
pub use merge::{MergeCounts, MergeSettings, MergedPages, Merging};
pub use numa::{BindError, Moved, Moving, PlaceMode, PlacePolicy, PolicyId, Unmoved};
pub use policy::{Policy, PolicyError, SwapInReuse, Track, WriteUpgrade};
pub use space::{
    AddressSpace, Area, Backing, Layout, Limits, LockFuture, MapKind, MapRequest, Placement, Totals,
};
pub use space::{Advice, Advised, Mapped, RemapRequest, Scanned, SyncFlags, ToPopulate};
pub use stats::{Account, Definition, ROWS, Row, Source, Value};
pub use swap::{
    DeviceError, DeviceUse, Direction, Effort, MAX_MEMCGS, Memcg, Submission, Swap, SwapDevice,
    Ticket, Transfer,
};
pub use trace::{Event, TraceSink};
pub use vma::{AreaFlags, Rights};
