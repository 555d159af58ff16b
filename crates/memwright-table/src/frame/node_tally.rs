//! The allocation statistics of a NUMA node.

use core::sync::atomic::AtomicU64;

/// Allocation statistics of a node, in frames (Linux 7.2 Documentation/admin-guide/numastat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Intended for this node and served from it.
    pub hit: u64,
    /// Intended for another node but served from this one.
    pub miss: u64,
    /// Intended for this node but served from another.
    pub foreign: u64,
    /// Interleaved to this node and served from it.
    pub interleaved: u64,
    /// Served from this node for one of its own CPUs.
    pub local: u64,
    /// Served from this node for a CPU of another node.
    pub other: u64,
}

/// The counters from which `NodeCounts` is computed. Allocations served from CPU caches are added when the counts are
/// read.
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
