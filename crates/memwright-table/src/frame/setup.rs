//! Setup of the frame allocator from a machine's memory.

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
use super::{FrameKind, Frames, MAX_NODES, SetupError, Topology, rust_alloc};
use crate::addr::{Frame, FrameRange, MAX_CPUS, PAGE_SIZE};
use crate::handle::TryPush;
use crate::machine::{Machine, check_registers, frame_pointer};
use crate::sync::{Lock, Rank};
use rust_alloc::vec::Vec;

/// A range of memory of one node, for [`Frames::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The frames.
    pub range: FrameRange,
    /// The NUMA node to which the frames belong. The machine has the nodes from 0 to the highest of its regions: one region
    /// on node 3 makes four nodes, three of them without memory.
    pub node: u8,
}

impl<M: Machine> Frames<M> {
    /// Creates the allocator for the memory in `regions`. The metadata, 64 bytes for each frame number from the lowest
    /// to the highest, is stored in the first frames of the largest region.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(machine: M, regions: &[Region]) -> Result<Self, SetupError> {
        let base = machine.memory_base();
        // On some architectures, a slot computes the address of the word in one frame from that of the word in another.
        base.as_ptr().expose_provenance();
        check_machine(&machine)?;
        check_regions(&machine, regions)?;
        let lowest = regions
            .iter()
            .map(|r| r.range.start.number())
            .min()
            .ok_or(SetupError::NoMemory)?;
        let end = regions
            .iter()
            .map(|r| r.range.end_number())
            .max()
            .ok_or(SetupError::NoMemory)?;
        let count = (end - u64::from(lowest)) as u32;
        let reserved = place_metadata(regions, count)?;

        let meta = NonNull::new(frame_pointer(base, reserved.start).cast::<Meta>())
            .ok_or(SetupError::NoRoomForMetadata(reserved.count))?;
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
        for _ in 0..frames.machine.cpu_count() {
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

/// Checks the machine's memory base, number of CPUs, registers and template.
fn check_machine<M: Machine>(machine: &M) -> Result<(), SetupError> {
    let base = machine.memory_base().addr().get();
    if base % PAGE_SIZE != 0 {
        return Err(SetupError::Misaligned(base));
    }
    let cpus = machine.cpu_count();
    if cpus == 0 || cpus > MAX_CPUS {
        return Err(SetupError::CpuCount(cpus));
    }
    check_registers(machine).map_err(SetupError::Register)?;
    let is_managed = |frame| {
        machine.has_memory(FrameRange {
            start: frame,
            count: 1,
        })
    };
    match machine.template().filter(|frame| is_managed(*frame)) {
        Some(frame) => Err(SetupError::ManagedTemplate(frame)),
        None => Ok(()),
    }
}

/// Checks that each region is memory of the machine, and that no two regions overlap.
fn check_regions<M: Machine>(machine: &M, regions: &[Region]) -> Result<(), SetupError> {
    for (index, region) in regions.iter().enumerate() {
        let range = region.range;
        if range.count == 0 {
            return Err(SetupError::EmptyRegion(range.start));
        }
        // The last two frame numbers are reserved for `END` and `UNLINKED`.
        if range.end_number() >= u64::from(u32::MAX - 1) || !machine.has_memory(range) {
            return Err(SetupError::NotMemory(range));
        }
        let overlaps = |other: &&Region| {
            u64::from(other.range.start.number()) < range.end_number()
                && u64::from(range.start.number()) < other.range.end_number()
        };
        if let Some(other) = regions[..index].iter().find(overlaps) {
            return Err(SetupError::Overlap(other.range, range));
        }
        if usize::from(region.node) >= MAX_NODES {
            return Err(SetupError::NoSuchNode(region.node));
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
        Some(_) | None => Err(SetupError::NoRoomForMetadata(needed)),
    }
}
