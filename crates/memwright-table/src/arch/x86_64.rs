//! x86-64: the processors read the words that software writes.

use core::sync::atomic::AtomicU64;

use super::{Architecture, Tables};

/// The page tables of x86-64 with four levels.
#[derive(Clone, Copy, Debug)]
pub struct X86_64;

impl Architecture for X86_64 {
    const LEVELS: u8 = 4;

    // Intel SDM volume 3A, "Operations that Invalidate TLBs and Paging-Structure Caches": a page fault invalidates the
    // entries for its address. Entries that are not present are not cached.
    const FAULT_DROPS_STALE: bool = true;

    const BREAK_BEFORE_MAKE: bool = false;
}

impl Tables for X86_64 {
    type Slot = AtomicU64;

    const TABLE_ORDER: u8 = 0;

    // Intel SDM volume 3A, "Determination of Access Rights": a right applies if every entry of the walk has it.
    const UPPER_ENTRIES_PERMIT: bool = true;

    // Intel SDM volume 3A, "Accessed and Dirty Flags".
    const UPPER_ENTRIES_ACCESSED: bool = true;
}
