//! The allocation statistics of a NUMA node.

use core::sync::atomic::AtomicU64;

/// Allocation statistics of a node, in frames (Linux 7.2 Documentation/admin-guide/numastat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Frames intended for this node and allocated from it.
    pub hit: u64,
    /// Frames intended for another node but allocated from this one.
    pub miss: u64,
    /// Frames intended for this node but allocated from another node.
    pub foreign: u64,
    /// Frames that an interleave policy intended for this node and that were allocated from it.
    pub interleaved: u64,
    /// Frames allocated from this node by one of its own CPUs.
    pub local: u64,
    /// Frames allocated from this node by a CPU of another node.
    pub other: u64,
}

/// The counters of a node from which its `NodeCounts` is computed. `Frames::node_counts` adds the allocations that were
/// served from CPU caches.
#[derive(Default)]
pub(super) struct NodeTally {
    pub(super) total: AtomicU64,
    pub(super) hit: AtomicU64,
    pub(super) miss: AtomicU64,
    pub(super) foreign: AtomicU64,
    pub(super) interleaved: AtomicU64,
    pub(super) local: AtomicU64,
    pub(super) other: AtomicU64,
}
