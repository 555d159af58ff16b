//! The addresses that an address space may use.

use memwright_table::VirtAddr;

/// The addresses at which areas may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The lowest mappable address (`vm.mmap_min_addr`).
    pub lowest: VirtAddr,
    /// The address from which get_unmapped_area searches downwards if there is no hint.
    pub mmap_top: VirtAddr,
    /// The first address past the mappable range.
    pub highest: VirtAddr,
}
