//! AArch64 with the 4 KiB granule and four levels (Arm Architecture Reference Manual for A-profile, "The AArch64
//! Virtual Memory System Architecture"). The processors have FEAT_HAFDBS, unless they fault in place of setting bits.
//! They do not have FEAT_HAFT.

use memwright_table::{Aarch64Registers, Uses};

use super::Leaf;
use crate::tlb::Rights;

pub(crate) use memwright_table::Aarch64 as Processor;

/// The bit without which a processor ignores an entry.
pub(crate) const PRESENT: u64 = 1 << 0;

/// Whether a page fault drops the cached entries for its address.
pub(crate) const FAULT_DROPS: bool = false;
/// Whether a processor can cache that an entry is not present.
pub(crate) const CACHES_ABSENT: bool = false;
/// Whether an entry may map another frame, size or memory type only after every CPU has dropped the old translation.
pub(crate) const BREAK_BEFORE_MAKE: bool = true;

const TABLE: u64 = 1 << 1;
const MEMORY_TYPE_SHIFT: u32 = 2;
const MEMORY_TYPE: u64 = 0b111 << MEMORY_TYPE_SHIFT;
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const SHAREABLE: u64 = 0b11 << 8;
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const DIRTY_MODIFIER: u64 = 1 << 51;
const CONTIGUOUS: u64 = 1 << 52;
const KERNEL_NO_EXECUTE: u64 = 1 << 53;
const NO_EXECUTE: u64 = 1 << 54;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// In an entry that points to a table, the bits that restrict the rights of all pages below the table.
const TABLE_RIGHTS: u64 = 0x1f << 59;

/// Returns whether a present entry of `level` maps a page.
pub(crate) fn is_leaf(level: u8, entry: u64) -> bool {
    level == 1 || entry & TABLE == 0
}

/// Returns the rights that a present entry gives, as a leaf or as an entry that points to a lower table.
pub(crate) fn rights(level: u8, entry: u64) -> Rights {
    if !is_leaf(level, entry) {
        return Rights::ALL;
    }
    Rights {
        write: entry & READ_ONLY == 0 || entry & DIRTY_MODIFIER != 0,
        user: entry & USER != 0,
        execute: entry & NO_EXECUTE == 0,
    }
}

/// Returns the leaf entry `entry` as the processor leaves it after an access that the entry's rights permit. The access
/// is a store if `write` is true.
pub(crate) fn used(entry: u64, write: bool) -> u64 {
    let written = if write { READ_ONLY } else { 0 };
    (entry | ACCESSED) & !written
}

/// Returns whether the leaf records a store, so that a further store does not change its entry.
pub(crate) fn is_dirty(entry: u64) -> bool {
    entry & READ_ONLY == 0
}

/// Returns an entry that points to a table, as it is after a walk through it.
pub(crate) fn used_table(entry: u64) -> u64 {
    entry
}

/// Returns the address of the table to which an entry points, or `None` if the entry restricts the rights of all pages
/// below the table, which no entry of Memwright does.
pub(crate) fn table(entry: u64) -> Option<u64> {
    (entry & TABLE_RIGHTS == 0).then_some(entry & ADDRESS)
}

/// Returns the leaf of a present entry of `level`, or `None` if Memwright must not write such an entry: a reserved
/// entry; a global entry, which would survive the invalidation of its address space; an entry that lets the kernel
/// execute the program's memory; an entry whose memory is not coherent between CPUs; or a part of a contiguous range.
pub(crate) fn leaf(level: u8, entry: u64) -> Option<Leaf> {
    let is_block = entry & TABLE == 0;
    let needed = NOT_GLOBAL | KERNEL_NO_EXECUTE | SHAREABLE;
    let refused = entry & needed != needed || entry & CONTIGUOUS != 0;
    if refused || level == 4 || is_block == (level == 1) {
        return None;
    }
    // The indices in the page attribute table of x86-64 that select the same memory types.
    let pat = match (entry & MEMORY_TYPE) >> MEMORY_TYPE_SHIFT {
        0 => 0,
        1 => 1,
        2 => 3,
        _ => return None,
    };
    Some(Leaf {
        address: entry & ADDRESS,
        pat,
    })
}

/// Returns the control registers as a kernel sets them. If `is_wrong` is true, they select addresses of 39 bits.
pub(crate) fn registers(uses: Uses, is_wrong: bool) -> Option<Aarch64Registers> {
    let size = if is_wrong { 25 } else { 16 };
    let records = if uses.sets_accessed_and_dirty {
        3 << 39
    } else {
        0
    };
    Some(Aarch64Registers {
        // HD and HA, IPS of 48 bits, TTBR1 with the 4 KiB granule, and TTBR0: inner shareable, write-back.
        tcr: records | 5 << 32 | 0xb510 << 16 | 0x3500 | size,
        mair: 0x0004_44ff,
        // SPAN, I, SA, C and M.
        sctlr: 1 << 23 | 1 << 12 | 1 << 3 | 1 << 2 | 1,
    })
}
