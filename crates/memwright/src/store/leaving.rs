//! The pages of an object that reclaim selected, and the result of their swap-out or writeback.

use crate::store::cluster::Cluster;
use crate::types::memcg::Memcg;

/// Pages of an object that are to be swapped out or written back.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// The pages, by their indices in the object.
    pub pages: Cluster,
    /// Whether to skip pages that were accessed since the previous scan.
    pub unused: bool,
    /// The memcg that is charged for the swap slots of the pages.
    pub memcg: Memcg,
}

/// The result of swapping out pages of an object or writing them back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The number of pages that were removed from memory.
    pub pages: u64,
    /// The number of pages that were written back to the backing store of the object; 0 for an object whose pages are
    /// swapped out.
    pub written_back: u64,
    /// Whether some pages stay in memory because no swap slot was free or the device had no room.
    pub is_full: bool,
}
