//! The cursors of scans over the memory of all processes.

use memwright::ObjectPlace;
use memwright_linux_base::sync::{Lock, Rank};

/// A position in the memory of all processes: the process and the page at which to continue.
#[derive(Clone, Copy, Default)]
pub struct Position {
    /// The id of the process.
    pub id: u32,
    /// The number of the virtual page in the address space of the process.
    pub page: u64,
}

/// A position of the reclaim cursor. In each round, the cursor first visits the pages that processes map, and then the
/// unmapped pages of objects.
#[derive(Clone, Copy, Default)]
pub struct ReclaimPosition {
    /// The position in the pages that processes map.
    pub mapped: Position,
    /// The position in the unmapped pages; `None` while the cursor visits mapped pages.
    pub unmapped: Option<ObjectPlace>,
}

/// A reclaim cursor, which all threads that reclaim the same memory share. It visits all pages that can be reclaimed.
pub struct ReclaimCursor {
    /// The position at which the last scan stopped.
    pub place: Lock<ReclaimPosition>,
}

impl Default for ReclaimCursor {
    /// Creates a cursor at the start of a round.
    fn default() -> Self {
        Self {
            place: Lock::new(Rank::Leaf, ReclaimPosition::default()),
        }
    }
}
