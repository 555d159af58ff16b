//! Why a machine, its regions, its topology or a template cannot be used.

use core::fmt;

use super::{MAX_NODES, OutOfFrames};
use crate::addr::{Frame, FrameRange, MAX_CPUS, PAGE_SIZE};
use crate::arch::WrongRegister;
use crate::handle::OutOfMemory;

/// Why [`Frames::new`](super::Frames::new), [`Frames::set_topology`](super::Frames::set_topology) or
/// [`Table::new`](crate::Table::new) failed. Each variant contains the value that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// There is no region.
    NoMemory,
    /// [`Machine::memory_base`](crate::Machine::memory_base) returned this address, which is not a multiple of
    /// [`PAGE_SIZE`].
    Misaligned(usize),
    /// [`Machine::cpu_count`](crate::Machine::cpu_count) returned this number, which is 0 or more than [`MAX_CPUS`].
    CpuCount(usize),
    /// This field of the registers that [`Machine::registers`](crate::Machine::registers) returned has a wrong value.
    Register(WrongRegister),
    /// [`Machine::has_memory`](crate::Machine::has_memory) accepts the frame that
    /// [`Machine::template`](crate::Machine::template) returned, and the embedder has not allocated it as a frame of
    /// the kind [`Kernel`](super::FrameKind::Kernel).
    ManagedTemplate(Frame),
    /// The region that begins at this frame has no frames.
    EmptyRegion(Frame),
    /// [`Machine::has_memory`](crate::Machine::has_memory) rejects this region, or the numbers of its frames are too
    /// high.
    NotMemory(FrameRange),
    /// These two regions overlap.
    Overlap(FrameRange, FrameRange),
    /// A region is on this node, which is [`MAX_NODES`] or higher.
    NoSuchNode(u8),
    /// The metadata of all frames needs this number of frames, and no region has more than that number.
    NoRoomForMetadata(u32),
    /// The regions are on `regions` nodes, and the topology has `topology` nodes.
    NodeCount {
        /// The number of nodes on which the regions are.
        regions: usize,
        /// The number of nodes of the topology.
        topology: usize,
    },
    /// No frame is free for the root table.
    OutOfFrames,
    /// The heap is too small for the per-CPU state.
    OutOfHeap,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = |range: &FrameRange| (range.start.number(), range.end_number());
        match self {
            SetupError::NoMemory => f.write_str("no region of memory"),
            SetupError::Misaligned(base) => {
                write!(f, "memory base {base:#x} is not a multiple of {PAGE_SIZE}")
            }
            SetupError::CpuCount(cpus) => {
                write!(f, "{cpus} CPUs, where 1 to {MAX_CPUS} are possible")
            }
            SetupError::Register(wrong) => wrong.fmt(f),
            SetupError::ManagedTemplate(frame) => write!(
                f,
                "the template {frame:?} is in the memory that the allocator manages"
            ),
            SetupError::EmptyRegion(start) => write!(f, "the region at {start:?} is empty"),
            SetupError::NotMemory(range) => {
                let (start, end) = ends(range);
                write!(f, "frames {start:#x}..{end:#x} are not memory")
            }
            SetupError::Overlap(one, other) => {
                let ((start, end), (again, last)) = (ends(one), ends(other));
                write!(
                    f,
                    "frames {start:#x}..{end:#x} and {again:#x}..{last:#x} overlap"
                )
            }
            SetupError::NoSuchNode(node) => {
                write!(f, "node {node}, where 0 to {} are possible", MAX_NODES - 1)
            }
            SetupError::NoRoomForMetadata(frames) => {
                write!(f, "no region has room for {frames} frames of metadata")
            }
            SetupError::NodeCount { regions, topology } => write!(
                f,
                "the memory is on {regions} nodes, but the topology has {topology}"
            ),
            SetupError::OutOfFrames => f.write_str("no frame is free for the root table"),
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

impl From<OutOfFrames> for SetupError {
    fn from(_: OutOfFrames) -> Self {
        SetupError::OutOfFrames
    }
}
