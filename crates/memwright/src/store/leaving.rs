//! Pages of an object that reclaim selected, and what became of them.

use crate::store::cluster::Cluster;
use crate::types::memcg::Memcg;

/// Pages of an object that are to be swapped out or written back.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// The pages.
    pub pages: Cluster,
    /// Only those that were not accessed since the previous scan.
    pub unused: bool,
    /// The memcg charged for their slots.
    pub memcg: Memcg,
}

/// The result of swapping out pages of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The number of pages that left memory.
    pub pages: u64,
    /// The number of pages that were written back to the object's backing store, if that is not swap.
    pub written_back: u64,
    /// The other pages stay in memory because no slot was available or the device had no room.
    pub is_full: bool,
}
