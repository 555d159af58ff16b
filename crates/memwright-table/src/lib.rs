//! Frames, page-table entries, tables with cursors, and the TLB gather.
//!
//! This crate is the ground that the Memwright memory manager stands on, and all of its `unsafe`.
//! It knows what an entry means, who may change it, what CPUs must forget afterwards, and when a
//! frame is free again. It knows no areas, no faults and no system calls.
//!
//! # The house
//! | Module | What it holds |
//! |---|---|
//! | [`machine`] | [`Machine`]: all that an embedder must provide |
//! | [`addr`] | typed addresses, pages, frames, CPUs |
//! | [`frame`] | [`Frames`]: buddy allocator, per-CPU caches, metadata of each frame |
//! | [`entry`] | [`Entry`], [`Bits`], [`Change`]; the encoding in one file, in private |
//! | [`table`] | [`Table`] and [`Cursor`]: the only way to read or change entries |
//! | [`gather`] | [`Gather`]: what to invalidate, and what is freed only after that |
//! | [`tags`] | which root each address-space tag of a CPU stands for |
//! | [`sync`] | locks with a written order, and the layer a scheduler can own in tests |
//! | [`handle`] | [`Shared`] and [`TryPush`]: heap memory whose allocation can fail |
//!
//! # How a change goes
//! An operation makes a [`Gather`], opens a [`Cursor`] on a range, which locks one table at a time,
//! and changes entries through it. Each change is classified ([`change`]) and told to the gather
//! under the lock. Displaced frames wait in the gather. [`Gather::finish`] invalidates once and
//! gives them up.
//!
//! ```
//! use core::ptr::NonNull;
//! use std::sync::Arc;
//! use memwright_table::*;
//!
//! /// Four MiB of host memory, one CPU, and no translations to forget.
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
//! // SAFETY: the memory is reached through `Machine` alone.
//! unsafe impl Send for Toy {}
//! // SAFETY: as above.
//! unsafe impl Sync for Toy {}
//!
//! // SAFETY: `FRAMES` frames are valid from the base on, for as long as the process lives.
//! unsafe impl Machine for Toy {
//!     fn memory_base(&self) -> NonNull<u8> { self.0 }
//!     fn has_memory(&self, range: FrameRange) -> bool { range.end_number() <= FRAMES.into() }
//!     fn cpu(&self) -> CpuId { CpuId::new(0) }
//!     fn cpu_count(&self) -> usize { 1 }
//!     fn relax(&self) { std::hint::spin_loop() }
//!     fn load_root(&self, _root: Frame) {}
//!     fn invalidate_local(&self, what: &Invalidation) { println!("forget {what:?}") }
//!     fn invalidate_remote(&self, _: CpuSet, _: Frame, _: &[Invalidation]) {}
//! }
//!
//! let all = FrameRange { start: Frame::new(0), count: FRAMES };
//! let frames = Arc::new(Frames::new(Toy::new(), &[Region { range: all, node: 0 }]).unwrap());
//! let table = Table::new(Arc::clone(&frames), None).unwrap();
//! table.load();
//!
//! // Map a page: the table takes over the reference of its frame.
//! let page = PageRange::single(VirtAddr::new(0x40_0000).page());
//! let block = frames.allocate_zeroed(0, FrameKind::Anonymous).unwrap();
//! let bits = Bits::READ | Bits::WRITE | Bits::EXCLUSIVE | Bits::ACCESSED;
//! table.cursor(page).fill(Entry::page(block.into_raw(), bits)).unwrap();
//! assert_eq!(table.table_frames(), 4);
//!
//! // Take the right to write away: every CPU must forget it before `finish` returns.
//! let mut gather = table.gather();
//! let left = table.cursor(page).edit(Bits::empty(), Bits::WRITE, &mut gather);
//! assert!(left.bits.contains(Bits::EXCLUSIVE));
//! let counts = gather.finish();
//! assert_eq!((counts.of(Change::Shrank), counts.local), (1, 1));
//!
//! // Unmap it: the frame is free after the flush, not before.
//! let mut gather = table.gather();
//! table.cursor(page).remove_all(&mut gather);
//! assert_eq!(frames.used_by(FrameKind::Anonymous), 1);
//! gather.finish();
//! assert_eq!(frames.used_by(FrameKind::Anonymous), 0);
//! # table.note_unloaded(CpuId::new(0));
//! ```
//!
//! # The order of locks
//! A thread of control takes locks from the root of this tree towards a leaf, and never two of one
//! rank; [`sync::Rank`] is the same order as an enum, and debug builds check it. `Table` and below
//! are this crate's, the ranks above them are handed out to its users.
//! ```text
//! Process ─ Signals               the tree of processes; signal state of one
//! ├─ FileTable ─ FileSystem ─ File
//! └─ Space                        areas of an address space (SpaceChild: the child's in a fork)
//!    ├─ ObjectRegistry ─ Object   who maps an object; its pages
//!    └─ Table                     one page table (TableChild: a second one)
//!       └─ Folio                  the counts of a folio's parts
//!          └─ FrameCache          one CPU's free frames
//!             └─ Frames           the free frames of a node
//! Scheduler ─ Wait ─ Console      under any of these
//! Leaf ─ Heap                     under any other; only the heap's lock is taken under a leaf
//! ```
//! An invalidation of other CPUs may run under any lock up to `TableChild`: who waits for a lock
//! serves invalidations meanwhile ([`Machine::relax`]).
//!
//! # What callers must keep
//! Safe functions of this crate cannot break Rust's memory safety, but they can break the memory
//! manager's. Three things are the caller's: a reference that is stored raw ([`FrameRef::into_raw`])
//! is adopted once; tables are freed under the write lock of their address space; a root is loaded
//! by [`Table::load`], or noted, so that its CPU is told what to forget.
#![no_std]
#![deny(missing_docs)]

pub mod addr;
pub mod entry;
pub mod frame;
pub mod gather;
pub mod handle;
pub mod linked;
pub mod machine;
mod rising;
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
pub use entry::{Bits, Change, Entry, Marker, Marks, Migrating, Present, Swapped, change};
pub use frame::{
    Chooser, FOLIO_FRAMES, FOLIO_ORDER, FolioPages, FrameAudit, FrameKind, FrameRef, Frames,
    MAX_NODES, NoHugePage, NodeChoice, NodeCounts, NodeSet, OutOfFrames, PoolCounts, Region,
    SetupError, Slots, Topology, Usage,
};
pub use gather::{FlushPolicy, Gather, GatherCounts};
pub use handle::{OutOfMemory, Shared, TryPush};
pub use linked::Linked;
pub use machine::{Invalidation, Machine};
pub use rising::{Rising, RisingRoom};
pub use table::{
    Collapsed, Copied, CopyRule, CopyStop, Cursor, Edit, Edited, Extent, Look, Prepared, Table,
    WrittenRun,
};
pub use tags::{MOST_TAGS, TagChoice, Tags};
