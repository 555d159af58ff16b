//! The addresses that an address space may use.

use memwright_table::VirtAddr;

/// The addresses at which areas may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The lowest mappable address (`vm.mmap_min_addr`).
    pub lowest: VirtAddr,
    /// Without a hint, get_unmapped_area searches downwards from here.
    pub mmap_top: VirtAddr,
    /// The first address past the mappable range.
    pub highest: VirtAddr,
}
