//! Page frames, page-table entries, page tables with cursors, and the TLB gather.
//!
//! This crate is the foundation of the Memwright memory manager and contains all of its `unsafe` code. It defines what
//! an entry means, which locks protect it, which translations the CPUs must invalidate after a change, and when a frame
//! becomes free again. VMAs, page faults and system calls are defined in other crates.
//!
//! # Modules
//! | Module | Contents |
//! |---|---|
//! | [`machine`] | [`Machine`]: everything that an embedder must provide |
//! | [`addr`] | typed addresses, pages, frames and CPU numbers |
//! | [`frame`] | [`Frames`]: buddy allocator, per-CPU caches, per-frame metadata |
//! | [`entry`] | [`Entry`], [`Bits`], [`Change`]; independent of the encoding |
//! | `arch` | [`Architecture`]: what the bits of an entry are, for each architecture of page tables |
//! | [`table`] | [`Table`] and [`Cursor`]: the only way to read or change entries |
//! | [`gather`] | [`Gather`]: the pending invalidations, and the frames that are freed only after the flush |
//! | [`tags`] | the root to which each address-space tag (PCID) of a CPU is assigned |
//! | [`sync`] | locks with a documented order, waits, and [`Threads`]: what a machine provides for them |
//! | [`handle`] | [`Shared`] and [`TryPush`]: fallible heap allocation |
//!
//! # How a change is made
//! An operation creates a [`Gather`] and opens a [`Cursor`] on a range, which locks one table at a time. It changes
//! entries through the cursor. Each change is classified ([`change`]) and recorded in the gather while the table's lock
//! is held. Displaced frames stay in the gather. [`Gather::finish`] invalidates once and then frees these frames.
//!
//! ```
//! use core::ptr::NonNull;
//! use std::sync::Arc;
//! use memwright_table::*;
//!
//! /// Four MiB of host memory, one CPU, and no TLB.
//! struct Toy(NonNull<u8>);
//!
//! const FRAMES: u32 = 1024;
//!
//! impl Toy {
//!     fn new() -> Self {
//!         let layout = std::alloc::Layout::from_size_align(FRAMES as usize * PAGE_SIZE, PAGE_SIZE);
//!         // SAFETY: the layout is not empty.
//!         let memory = unsafe { std::alloc::alloc_zeroed(layout.unwrap()) };
//!         Self(NonNull::new(memory).unwrap())
//!     }
//! }
//!
//! // SAFETY: the memory is accessed through `Machine` only.
//! unsafe impl Send for Toy {}
//! // SAFETY: as above.
//! unsafe impl Sync for Toy {}
//!
//! // SAFETY: `FRAMES` frames are valid from the base on, for as long as the process lives.
//! unsafe impl Machine for Toy {
//!     type Arch = X86_64;
//!     type Threads = OneCpu;
//!     fn memory_base(&self) -> NonNull<u8> { self.0 }
//!     fn has_memory(&self, range: FrameRange) -> bool { range.end_number() <= FRAMES.into() }
//!     fn cpu_count(&self) -> usize { 1 }
//!     fn load_root(&self, _root: Frame) {}
//!     fn invalidate_local(&self, what: &Invalidation) { println!("forget {what:?}") }
//!     fn invalidate_remote(&self, _: CpuSet, _: Frame, _: &[Invalidation]) {}
//! }
//!
//! let all = FrameRange { start: Frame::new(0), count: FRAMES };
//! let frames = Arc::new(Frames::new(Toy::new(), &[Region { range: all, node: 0 }]).unwrap());
//! let table = Table::new(Arc::clone(&frames)).unwrap();
//! let loaded = Loaded::new(&table);
//!
//! // Map a page: the table takes over the reference to its frame.
//! let page = PageRange::single(VirtAddr::new(0x40_0000).page());
//! let block = frames.allocate_zeroed(0, FrameKind::Anonymous).unwrap();
//! let bits = Bits::READ | Bits::WRITE | Bits::EXCLUSIVE | Bits::ACCESSED;
//! table.cursor(page).fill(Entry::page(block.into_raw(), bits)).unwrap();
//! assert_eq!(table.table_frames(), 4);
//!
//! // Write-protect the page: when `finish` returns, no CPU uses the old right.
//! let mut gather = table.gather();
//! let left = table.cursor(page).edit(Bits::empty(), Bits::WRITE, &mut gather);
//! assert!(left.bits.contains(Bits::EXCLUSIVE));
//! let counts = gather.finish();
//! assert_eq!((counts.of(Change::Shrank), counts.local), (1, 1));
//!
//! // Unmap it: the frame becomes free after the flush, not before.
//! let mut gather = table.gather();
//! table.cursor(page).remove_all(&mut gather);
//! assert_eq!(frames.used_by(FrameKind::Anonymous), 1);
//! gather.finish();
//! assert_eq!(frames.used_by(FrameKind::Anonymous), 0);
//! loaded.stop();
//! ```
//!
//! # Lock order
//! A thread acquires locks from the root of this tree towards a leaf. It never holds two locks of one rank, except
//! those of address spaces, by `SpreadLock::write_beside`. [`sync::Rank`] is the complete order as an enum, and debug
//! builds check it. `Table` and the ranks below it belong to this crate; the ranks above it are for its users.
//! ```text
//! Process ─ Signals               process tree; signal state of a process
//! ├─ FileTable ─ FileSystem ─ File
//! └─ Space                        areas of an address space (SpaceChild: the child's in a fork)
//!    ├─ ObjectRegistry ─ Object   the mappings of an object; its pages
//!    └─ Table                     a page table (TableChild: a second one)
//!       └─ Folio                  per-page reference counts of a folio
//!          └─ FrameCache          free frames of a CPU
//!             └─ Frames           free frames of a node
//! Scheduler ─ Wait ─ Console      under any of these
//! Leaf ─ Heap                     under any other; under a leaf memory may be freed, not allocated
//! ```
//! A CPU may send a remote invalidation while it holds any lock up to `TableChild`, because a CPU that waits for a lock
//! serves invalidations ([`Threads::relax`]).
//!
//! # Obligations of callers
//! Safe functions of this crate cannot break Rust's memory safety, but misuse can break the guarantees of the memory
//! manager. Callers must ensure three things:
//!
//! - A reference that was converted into a raw frame ([`FrameRef::into_raw`]) is adopted exactly once.
//! - Tables are freed only under the write lock of their address space.
//! - A CPU loads the root of a table by [`Loaded`] only, so that it receives invalidations.
#![no_std]
#![deny(missing_docs)]

pub mod addr;
mod arch;
pub mod entry;
pub mod frame;
pub mod gather;
pub mod grow;
pub mod handle;
pub mod linked;
pub mod machine;
mod rising;
mod root;
pub mod sync;
pub mod table;
pub mod tags;

#[cfg(test)]
extern crate std;
#[cfg(test)]
mod tests;

pub use addr::{
    CpuId, CpuSet, Frame, FrameRange, MAX_CPUS, PAGE_SIZE, Page, PageRange, PageSize, PhysAddr,
    VirtAddr,
};
pub use arch::{
    Aarch64, Aarch64Registers, Architecture, ByFault, Riscv64, Riscv64Sv39, Uses, WrongRegister,
    X86_64, X86_64Registers,
};
pub use entry::{
    Bits, CacheMode, Change, Entry, Marker, Marks, Migrating, Present, Swapped, change,
};
pub use frame::{
    Chooser, FOLIO_FRAMES, FOLIO_ORDER, FolioPages, FrameAudit, FrameKind, FrameRef, Frames,
    MAX_NODES, NoHugePage, NodeChoice, NodeCounts, NodeSet, NodeWords, OutOfFrames, Pinned,
    PoolCounts, Region, SetupError, Slots, SubpoolCounts, SubpoolId, Topology, UnsharedCounts,
    Usage,
};
pub use gather::{FlushPolicy, Gather, GatherCounts};
pub use handle::{OutOfMemory, Shared, TryPush};
pub use linked::Linked;
pub use machine::{Invalidation, Machine};
pub use rising::{Rising, RisingRoom};
pub use root::{HasTable, Loaded};
pub use sync::{OneCpu, Threads};
pub use table::{
    AlikeRun, Collapsed, Copied, CopyRule, CopyStop, Cursor, CutTables, Edit, Edited, EditedRuns,
    Extent, Look, MoveRule, PageAccess, Prepared, ShareRule, Table, TableTotals, Touched, Tracked,
    Translation,
};
pub use tags::{MOST_TAGS, TagChoice, Tags};
