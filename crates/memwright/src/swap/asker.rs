//! The page fault for which pages are read from swap.

use memwright_table::Page;

/// A page fault that begins reads of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The number of the address space in which the page faulted.
    pub(crate) space: u64,
    /// The page that faulted.
    pub(crate) page: Page,
    /// The number of pages that readahead expects, including the page that faulted.
    pub(crate) wanted: u64,
}
