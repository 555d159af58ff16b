//! Setup of the frame allocator from a machine's memory.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::buddy::Buddy;
use super::cache::Cache;
use super::chooser::Choosing;
use super::frames::CpuCache;
use super::meta::{Meta, State};
use super::node_tally::NodeTally;
use super::pool_state::Pool;
use super::slots::Keeper;
use super::unshared::Unshared;
use super::{FrameKind, Frames, Topology, rust_alloc};
use crate::addr::{Frame, FrameRange, PAGE_SIZE};
use crate::handle::{OutOfMemory, TryPush};
use crate::machine::{Machine, frame_pointer};
use crate::sync::{Lock, Rank};
use rust_alloc::vec::Vec;

/// A range of memory of one node, for [`Frames::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The frames.
    pub range: FrameRange,
    /// The NUMA node to which the frames belong.
    pub node: u8,
}

/// Why [`Frames::new`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// All regions are empty, or there is none.
    NoMemory,
    /// The machine does not have this memory, or two regions overlap.
    BadRegion(FrameRange),
    /// No region has room for the metadata of all frames.
    NoRoomForMetadata,
    /// The heap has no room for the per-CPU caches.
    OutOfHeap,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::NoMemory => f.write_str("the machine has no memory"),
            SetupError::BadRegion(range) => write!(
                f,
                "frames {:#x}..{:#x} are not memory, or named twice",
                range.start.number(),
                range.end_number()
            ),
            SetupError::NoRoomForMetadata => f.write_str("no region has room for the metadata"),
            SetupError::OutOfHeap => f.write_str("out of kernel heap"),
        }
    }
}

impl core::error::Error for SetupError {}

impl From<OutOfMemory> for SetupError {
    fn from(_: OutOfMemory) -> Self {
        SetupError::OutOfHeap
    }
}

impl<M: Machine> Frames<M> {
    /// Creates the allocator for the memory in `regions`. The metadata, 64 bytes for each frame number from the lowest
    /// to the highest, is stored in the first frames of the largest region.
    ///
    /// # Errors
    /// See [`SetupError`].
    ///
    /// # Panics
    /// If the machine's memory is not aligned to [`PAGE_SIZE`].
    pub fn new(machine: M, regions: &[Region]) -> Result<Self, SetupError> {
        let base = machine.memory_base();
        assert!(
            base.addr().get() % PAGE_SIZE == 0,
            "the machine's memory is not page-aligned"
        );
        check(&machine, regions)?;
        let filled = || regions.iter().filter(|region| region.range.count > 0);
        let lowest = filled()
            .map(|r| r.range.start.number())
            .min()
            .ok_or(SetupError::NoMemory)?;
        let end = filled()
            .map(|r| r.range.end_number())
            .max()
            .ok_or(SetupError::NoMemory)?;
        let count = (end - u64::from(lowest)) as u32;
        let reserved = place_metadata(regions, count)?;

        let meta = NonNull::new(frame_pointer(base, reserved.start).cast::<Meta>())
            .ok_or(SetupError::NoRoomForMetadata)?;
        for number in 0..count {
            let value = Meta::new(State::new(FrameKind::Hole, 0, 0));
            // SAFETY: `reserved` is in a region that the machine has, has room for `count` values, is page-aligned, and
            // is kept out of the free lists below.
            unsafe { meta.add(number as usize).write(value) };
        }

        let nodes = regions.iter().map(|region| region.node).max().unwrap_or(0);
        let mut frames = Self {
            machine,
            base,
            metas: NonNull::slice_from_raw_parts(meta, count as usize),
            lowest,
            caches: Vec::new(),
            nodes: Vec::new(),
            topology: Topology::new(usize::from(nodes) + 1),
            tallies: Vec::new(),
            choosing: Choosing::nobody(),
            total: 0,
            fail_after: AtomicU64::new(u64::MAX),
            low_water: AtomicU64::new(0),
            earmarked: AtomicU64::new(0),
            unshared: Unshared::default(),
            folios: AtomicU64::new(0),
            object_folios: AtomicU64::new(0),
            slots: Keeper::none(),
            pool: Lock::new(Rank::Pool, Pool::new()),
        };
        for node in 0..=nodes {
            frames
                .nodes
                .try_push(Lock::new(Rank::Frames, Buddy::new(node)))?;
            frames.tallies.try_push(NodeTally::default())?;
        }
        for _ in 0..frames.machine.cpu_count().max(1) {
            frames.caches.try_push(CpuCache {
                free: Lock::new(Rank::FrameCache, Cache::new()),
                mapped_objects: AtomicI64::new(0),
            })?;
        }
        for region in regions {
            let added = frames.add_region(*region, reserved);
            frames.total += added;
            let tally = &frames.tallies[region.node as usize];
            tally.total.fetch_add(added, Ordering::Relaxed);
        }
        Ok(frames)
    }

    /// Adds the frames of `region` that are not in `reserved` to the free lists, and returns their number.
    fn add_region(&self, region: Region, reserved: FrameRange) -> u64 {
        for number in 0..region.range.count {
            let frame = Frame::new(region.range.start.number() + number);
            let kind = if reserved.contains(frame) {
                FrameKind::Reserved
            } else {
                FrameKind::Free
            };
            let meta = self.meta(frame);
            meta.set_state(State::new(kind, 0, region.node));
        }
        let mut start = region.range.start.number();
        let end = region.range.end_number() as u32;
        if region.range.covers(reserved) {
            start = reserved.end_number() as u32;
        }
        self.nodes[region.node as usize]
            .lock()
            .put_run(self.metas(), start, end);
        u64::from(end - start)
    }
}

/// Checks that each region is memory of the machine, and that no two regions overlap.
fn check<M: Machine>(machine: &M, regions: &[Region]) -> Result<(), SetupError> {
    for (index, region) in regions.iter().enumerate() {
        let range = region.range;
        let shared = regions[..index].iter().any(|other| {
            u64::from(other.range.start.number()) < range.end_number()
                && u64::from(range.start.number()) < other.range.end_number()
        });
        // The last two frame numbers are reserved for `END` and `UNLINKED`.
        if shared || range.end_number() >= u64::from(u32::MAX - 1) || !machine.has_memory(range) {
            return Err(SetupError::BadRegion(range));
        }
    }
    Ok(())
}

/// Returns the frames for the metadata of `count` frames: the first frames of the largest region.
fn place_metadata(regions: &[Region], count: u32) -> Result<FrameRange, SetupError> {
    let needed = (count as usize * size_of::<Meta>()).div_ceil(PAGE_SIZE) as u32;
    let largest = regions.iter().rev().max_by_key(|region| region.range.count);
    match largest {
        Some(region) if region.range.count > needed => Ok(FrameRange {
            start: region.range.start,
            count: needed,
        }),
        Some(_) | None => Err(SetupError::NoRoomForMetadata),
    }
}
