//! x86-64 with four levels (Intel SDM volume 3A, "4-Level Paging and 5-Level Paging").

use memwright_table::{Uses, X86_64Registers};

use super::Leaf;
use crate::tlb::Rights;

pub(crate) use memwright_table::X86_64 as Processor;

/// The bit without which a processor ignores an entry.
pub(crate) const PRESENT: u64 = 1 << 0;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;

/// Whether a page fault drops the cached entries for its address.
pub(crate) const FAULT_DROPS: bool = true;
/// Whether a processor can cache that an entry is not present.
pub(crate) const CACHES_ABSENT: bool = false;
/// Whether an entry may map another frame, size or memory type only after every CPU has dropped the old translation.
pub(crate) const BREAK_BEFORE_MAKE: bool = false;

const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// The low bit of the index in the page attribute table.
const WRITE_THROUGH: u64 = 1 << 3;
/// The middle bit of the index in the page attribute table.
const CACHE_DISABLE: u64 = 1 << 4;
const LEAF: u64 = 1 << 7;
/// In a 4 KiB entry, which is always a leaf, bit 7 is not `LEAF` but the high bit of the index in the page attribute
/// table.
const SMALL_MEMORY_TYPE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// In a huge leaf, bit 12 is the high bit of the index in the page attribute table. The frame number begins above it.
const LEAF_MEMORY_TYPE: u64 = 1 << 12;

/// Returns whether a present entry of `level` maps a page.
pub(crate) fn is_leaf(level: u8, entry: u64) -> bool {
    level == 1 || entry & LEAF != 0
}

/// Returns the rights that a present entry gives, as a leaf or as an entry that points to a lower table.
pub(crate) fn rights(_level: u8, entry: u64) -> Rights {
    Rights {
        write: entry & WRITABLE != 0,
        user: entry & USER != 0,
        execute: entry & NO_EXECUTE == 0,
    }
}

/// Returns the leaf entry `entry` as the processor leaves it after an access that the entry's rights permit. The access
/// is a store if `write` is true.
pub(crate) fn used(entry: u64, write: bool) -> u64 {
    let dirty = if write { DIRTY } else { 0 };
    entry | ACCESSED | dirty
}

/// Returns whether the leaf records a store, so that a further store does not change its entry.
pub(crate) fn is_dirty(entry: u64) -> bool {
    entry & DIRTY != 0
}

/// Returns an entry that points to a table, as it is after a walk through it.
pub(crate) fn used_table(entry: u64) -> u64 {
    entry | ACCESSED
}

/// Returns the address of the table to which an entry points. Always returns `Some`: [`is_leaf`] counts an entry of
/// level 4 whose reserved bit is set as a leaf, so no such entry reaches this function.
pub(crate) fn table(entry: u64) -> Option<u64> {
    Some(entry & ADDRESS)
}

/// Returns the leaf of a present entry of `level`, or `None` if a reserved bit is set.
pub(crate) fn leaf(level: u8, entry: u64) -> Option<Leaf> {
    let address = match level {
        // There are no leaves of 512 GiB: the page-size bit is reserved at that level.
        4 => return None,
        1 => entry & ADDRESS,
        _ => entry & ADDRESS & !LEAF_MEMORY_TYPE,
    };
    Some(Leaf {
        address,
        pat: pat_index(level, entry),
    })
}

/// Returns the index in the page attribute table that a leaf entry of `level` selects.
fn pat_index(level: u8, entry: u64) -> u8 {
    let high = if level == 1 {
        SMALL_MEMORY_TYPE
    } else {
        LEAF_MEMORY_TYPE
    };
    let bit = |mask, value| if entry & mask != 0 { value } else { 0 };
    bit(WRITE_THROUGH, 1) | bit(CACHE_DISABLE, 2) | bit(high, 4)
}

/// Returns the control registers as a kernel sets them. If `is_wrong` is true, NXE is clear.
pub(crate) fn registers(uses: Uses, is_wrong: bool) -> Option<X86_64Registers> {
    let nxe = if is_wrong { 0 } else { 1 << 11 };
    let pat = if uses.write_combining {
        0x0007_0406_0007_0106
    } else {
        0x0007_0406_0007_0406
    };
    Some(X86_64Registers {
        // LME, LMA and SCE.
        efer: nxe | 1 << 10 | 1 << 8 | 1,
        // PG, WP, NE, ET, MP and PE.
        cr0: 0x8001_0033,
        // SMAP, SMEP, OSFXSR, PGE and PAE, and PCIDE.
        cr4: 0x0030_02a0 | u64::from(uses.tags) << 17,
        pat,
    })
}
