//! The cursors of scans over the memory of all processes.

use crate::sync::{Lock, Rank};
use memwright::ObjectPlace;

/// A position in the memory of all processes: the process and the page at which to continue.
#[derive(Clone, Copy, Default)]
pub(crate) struct Position {
    /// The id of the process.
    pub(crate) id: u32,
    /// The number of the page.
    pub(crate) page: u64,
}

/// A position of the reclaim cursor: in the pages that processes map, then in those that are not mapped.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReclaimPosition {
    /// The position in the pages that processes map.
    pub(crate) mapped: Position,
    /// The position in the unmapped pages, while the cursor is there.
    pub(crate) unmapped: Option<ObjectPlace>,
}

/// A reclaim cursor over all pages that can be reclaimed.
pub(crate) struct ReclaimCursor {
    /// The position at which the last caller stopped.
    pub(crate) place: Lock<ReclaimPosition>,
}

impl Default for ReclaimCursor {
    /// Creates a cursor at the start of a round.
    fn default() -> Self {
        Self {
            place: Lock::new(Rank::Leaf, ReclaimPosition::default()),
        }
    }
}
