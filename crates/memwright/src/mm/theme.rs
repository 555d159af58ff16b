//! Groups of operations of an address space, called themes. The type of a theme only refers to the address space.
//!
//! The operations of a theme, like those of [`AddressSpace`] itself, are in the folder for what they do.

use memwright_table::Machine;

use crate::mm::space::AddressSpace;

/// Defines the type of each theme, and the method of `AddressSpace` that returns it.
macro_rules! themes {
    ($($(#[$doc:meta])* $theme:ident, $(#[$returns:meta])* $accessor:ident;)*) => {
        $(
            $(#[$doc])*
            pub struct $theme<'s, M: Machine> {
                pub(crate) space: &'s AddressSpace<M>,
            }
        )*

        impl<M: Machine> AddressSpace<M> {
            $(
                $(#[$returns])*
                #[inline(always)]
                pub fn $accessor(&self) -> $theme<'_, M> {
                    $theme { space: self }
                }
            )*
        }
    };
}

themes! {
    /// Transparent huge pages of an address space.
    HugePages,
    /// The operations on transparent huge pages.
    huge_pages;

    /// KSM in an address space: merging of pages with equal contents.
    Ksm,
    /// The operations on merged pages.
    ksm;

    /// NUMA policies of an address space, the nodes of its pages, and NUMA balancing.
    Numa,
    /// The operations on the NUMA nodes of the memory.
    numa;

    /// The protection keys of an address space.
    ProtectionKeys,
    /// The operations on protection keys.
    protection_keys;

    /// The presence of an address space's pages in memory: locking, populating, and `mincore`.
    Residency,
    /// The operations that bring pages into memory, keep them there, or report them.
    residency;

    /// The record of which pages of an address space were written or accessed: `PAGEMAP_SCAN`, soft-dirty, and
    /// `clear_refs`.
    Tracking,
    /// The operations that track stores and accesses.
    tracking;

    /// Userfaultfd on an address space.
    Uffd,
    /// The operations of a userfaultfd.
    uffd;

    /// The amount of memory that an address space uses.
    Usage,
    /// The counts of used memory.
    usage;
}
