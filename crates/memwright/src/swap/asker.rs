//! The page fault for which pages are read.

use memwright_table::Page;

/// The page fault that begins reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The number of the address space.
    pub(crate) space: u64,
    /// The page that faulted.
    pub(crate) page: Page,
    /// The number of pages that readahead expects, including the page that faulted.
    pub(crate) wanted: u64,
}
