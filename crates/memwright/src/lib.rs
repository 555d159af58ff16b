//! A memory manager that behaves as Linux's does, for kernels and virtual machine monitors that are not
//! Linux: areas, page faults, copy-on-write, protection, fork, `mremap`, advice, locked memory.
//!
//! It is `no_std`, has no `unsafe`, and knows neither hardware nor system calls. Hardware is behind
//! [`memwright_table::Machine`]; an embedder turns traps into [`AddressSpace::fault`] and system calls into
//! the other methods of [`AddressSpace`].
//!
//! # An address space in a few lines
//!
//! On a simulated machine, whose physical memory is an allocation of the host:
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
//! // Protected there and back, the child's page is writable at once: no write fault follows.
//! child.protect(address, 4096, Rights::READ).unwrap();
//! child.protect(address, 4096, rw).unwrap();
//! assert_eq!(memory.account().count(Row::WriteFaultsAvoided), 1);
//!
//! child.audit().unwrap();
//! parent.audit().unwrap();
//! # Ok::<(), memwright_table::OutOfMemory>(())
//! ```
//!
//! # The house
//!
//! ```text
//! memory.rs    Memory: what all address spaces share: frames, zero frame, promises, policies, account
//! space/       AddressSpace, one file per operation
//! vma/         the map of areas: split, merge, room; pure, knows no table
//! fault/       one page fault, one file per outcome
//! writable.rs  the rule: may this entry be writable now?
//! object/      what areas show other than anonymous memory: the trait, sparse pages, shared memory
//! merge/       pages with equal contents share one frame
//! huge.rs      huge pages: who gets them, and the settings
//!              (those of the pool: object/huge_file.rs, fault/hugetlb.rs, space/hugetlb.rs)
//! commit.rs    promised memory          policy.rs  choices for experiments
//! stats.rs     the account              trace.rs   events as JSON
//! track/       which pages were written since somebody asked
//! numa/        where pages are placed on several nodes, and how they move
//! swap/        pages outside of memory: devices, slots, the way out
//! audit.rs     whether all of it agrees error.rs   one small enum per operation
//! ```
//!
//! # How a fault flows
//!
//! ```text
//! trap ──> AddressSpace::fault(address, access)
//!            areas.read(cpu) ── no area ──> fault/stack.rs: grow, look again, or refuse
//!            area: does it allow the access? ── no ──> refused
//!            ├─ anonymous ─> cursor ─┬─ absent, store ─> fault/anon.rs     a zeroed frame, exclusive
//!            │                       ├─ absent, load  ─> fault/anon.rs     the shared zero frame
//!            │                       ├─ swapped out ───> fault/swap.rs     read, reused or copied
//!            │                       └─ present ───────> fault/present.rs
//!            └─ an object ─> frame from the object ─> cursor ─> fault/file.rs   mapped, or copied
//!          fault/present.rs:  permitted already ─> invalidate here, retry      (spurious)
//!                             writable says yes  ─> grant                      (write permission only)
//!                             only reference     ─> exclusive again, grant     (write permission only)
//!                             else ─> fault/copy.rs: copy, empty, flush, fill
//! ```
//!
//! Every path that leaves a page mapped asks [`writable::writable`]; nothing remembers that a page once was
//! writable. Exclusivity, the bit on which the answer for private memory rests, lives in the entry: a new
//! anonymous page has it, fork clears it in parent and child under both locks, and only the sole reference
//! of any kind regains it.
//!
//! # Locks, in the order in which they are taken
//!
//! ```text
//! Scan            a look at the memory of all address spaces
//! └ Space         areas of an address space: read by faults and advice, written by what changes areas
//! └ SpaceChild    the child's, in a fork
//!   └ ObjectRegistry   which address spaces map an object; which objects have pages that may leave
//!     └ Object         the pages of an object
//!       └ Table        one page table, held by a cursor
//!         └ TableChild the child's, in a fork
//!           └ Swap       the slots of swap devices, what one device keeps
//!             └ FrameCache, Frames   the allocator
//! ```
//!
//! None is held when an operation returns, and none while anything waits. Truncation walks the address
//! spaces of an object without holding the object's locks; a fault that got a frame from the object before
//! looks at [`object::Mappings`]' generation under the table's lock, and starts again if it rose.
//!
//! # Failure
//!
//! Any allocation may fail. What an operation needs is reserved before it changes anything; what it did when
//! it fails half-way is what Linux leaves. `tests/scenarios/failures.rs` lets each allocation of a script
//! fail in turn.
//!
//! # What is matched, where, and which test shows it
//!
//! Linux 7.2; tests are modules of `tests/scenarios`, but for `vma/tests.rs`.
//!
//! | Operation | Linux | Here | Test |
//! |---|---|---|---|
//! | `mmap` | mm/mmap.c, mm/vma.c | space/map.rs | limits |
//! | `munmap` | mm/vma.c | space/unmap.rs | limits |
//! | `mprotect` | mm/mprotect.c | space/protect.rs | protect |
//! | may it be writable | mm/mprotect.c | writable.rs | writable.rs |
//! | `mremap` | mm/mremap.c | space/remap.rs | remap |
//! | `madvise` | mm/madvise.c | space/advise.rs | advise |
//! | splits by request | mm/huge_memory.c, mm/migrate.c | space/split.rs | split |
//! | `mincore` | mm/mincore.c | space/resident.rs | locks |
//! | `mlock` family | mm/mlock.c | space/lock.rs | locks |
//! | soft-dirty | fs/proc/task_mmu.c | track/soft_dirty.rs | track |
//! | `msync` | mm/msync.c | space/sync.rs | locks, objects |
//! | `fork` | kernel/fork.c, mm/memory.c | space/fork.rs | fork |
//! | areas | mm/vma.c, mm/vma.h | vma/ | vma/tests.rs |
//! | room | mm/vma.c | vma/room.rs | vma/tests.rs |
//! | anonymous fault | mm/memory.c | fault/anon.rs | faults |
//! | write-protect fault | mm/memory.c | fault/present.rs, fault/copy.rs | fork, objects |
//! | swap-in, swap-out | mm/memory.c, mm/vmscan.c, mm/swapfile.c | fault/swap.rs, swap/ | swap |
//! | placement, migration | mm/mempolicy.c, mm/migrate.c | numa/ | numa |
//! | file fault, fault-around | mm/memory.c, mm/filemap.c | fault/file.rs | objects |
//! | stack growth | mm/vma.c | fault/stack.rs | faults |
//! | shared memory, tmpfs pages | mm/shmem.c | object/shmem.rs | objects |
//! | swap of shared memory | mm/shmem.c, mm/rmap.c | swap/object.rs, swap/out_object.rs, swap/unshown.rs, object/store.rs | swap_shared, swap_objects |
//! | huge pages by name | mm/hugetlb.c | object/huge_file.rs, fault/hugetlb.rs | hugetlb |
//! | truncation | mm/memory.c, mm/truncate.c | object/mappings.rs, space/zap.rs | objects |
//! | overcommit mode 0 | mm/util.c | commit.rs | limits |
//!
//! Where it differs on purpose: a write permission that a protection change may grant is granted even if the
//! page is clean; rights that only grow interrupt no other CPU; a page that nobody has used since it was
//! mapped is protected or unmapped without any flush. Areas merge by their offsets alone, so that a few
//! anonymous areas merge which Linux keeps apart because they faulted separately before they met.
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
    DeviceError, DeviceUse, Direction, Effort, MOST_PAYERS, Submission, Swap, SwapDevice,
    SwapPayer, Ticket, Transfer,
};
pub use trace::{Event, TraceSink};
pub use vma::{AreaFlags, Rights};
