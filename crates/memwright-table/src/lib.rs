//! Frames, page-table entries, tables with cursors, and the TLB gather.
#![no_std]
#![deny(missing_docs)]

pub mod addr;
pub mod entry;
pub mod frame;
pub mod gather;
pub mod handle;
pub mod machine;
pub mod sync;
pub mod table;

#[cfg(test)]
extern crate std;
#[cfg(test)]
mod tests;

pub use addr::{
    CpuId, CpuSet, Frame, FrameRange, MAX_CPUS, PAGE_SIZE, Page, PageRange, PageSize, PhysAddr,
    VirtAddr,
};
pub use entry::{Bits, Change, Entry, Marker, Marks, Migrating, Present, Swapped, change};
pub use frame::{FrameAudit, FrameKind, FrameRef, Frames, OutOfFrames, Region, SetupError};
pub use gather::{Gather, GatherCounts};
pub use handle::{OutOfMemory, Shared, TryPush};
pub use machine::{Invalidation, Machine};
pub use table::{Copied, CopyRule, CopyStop, Cursor, Edit, Edited, Extent, Table};
