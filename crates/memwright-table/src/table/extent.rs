//! An entry with its pages.

use crate::addr::{PageRange, PageSize};
use crate::entry::Entry;

/// An entry and the pages of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The entry.
    pub entry: Entry,
    /// The pages that the entry applies to, clipped to the cursor's range.
    pub range: PageRange,
    /// The size of the page that the slot can map.
    pub size: PageSize,
}
