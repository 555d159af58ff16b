//! RISC-V with Sv48 or Sv39 (RISC-V Privileged Architecture, "Supervisor-Level ISA"). The processors have the extension
//! Svpbmt, and Svadu, or Svade if they fault in place of setting bits. They have neither Svvptc nor Svnapot.

use std::convert::Infallible;

use memwright_table::Uses;

use super::Leaf;
use crate::tlb::Rights;

#[cfg(not(simulated_sv39))]
pub(crate) use memwright_table::Riscv64 as Processor;
#[cfg(simulated_sv39)]
pub(crate) use memwright_table::Riscv64Sv39 as Processor;

/// The bit without which a processor ignores an entry.
pub(crate) const PRESENT: u64 = 1 << 0;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;

/// Whether a page fault drops the cached entries for its address.
pub(crate) const FAULT_DROPS: bool = false;
/// Whether a processor can cache that an entry is not present.
pub(crate) const CACHES_ABSENT: bool = true;
/// Whether an entry may map another frame, size or memory type only after every CPU has dropped the old translation.
pub(crate) const BREAK_BEFORE_MAKE: bool = false;

const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const GLOBAL: u64 = 1 << 5;
const NUMBER_SHIFT: u32 = 10;
const NUMBER: u64 = ((1 << 44) - 1) << NUMBER_SHIFT;
const MEMORY_TYPE_SHIFT: u32 = 61;
const MEMORY_TYPE: u64 = 0b11 << MEMORY_TYPE_SHIFT;
/// N, and the bits for future standards.
const RESERVED: u64 = 1 << 63 | 0x7f << 54;

/// Returns whether a present entry of `level` maps a page.
pub(crate) fn is_leaf(_level: u8, entry: u64) -> bool {
    entry & (READ | EXECUTE) != 0
}

/// Returns the rights that a present entry gives, as a leaf or as an entry that points to a lower table.
pub(crate) fn rights(level: u8, entry: u64) -> Rights {
    if !is_leaf(level, entry) {
        return Rights::ALL;
    }
    Rights {
        write: entry & WRITE != 0,
        // `Rights` has no right to read. Memwright maps no page that can be executed but not read.
        user: entry & USER != 0 && entry & READ != 0,
        execute: entry & EXECUTE != 0,
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
    entry
}

/// Returns the address of the table to which an entry points, or `None` if a reserved bit is set.
pub(crate) fn table(entry: u64) -> Option<u64> {
    let reserved = RESERVED | MEMORY_TYPE | WRITE | USER | ACCESSED | DIRTY;
    (entry & reserved == 0).then_some(address(entry))
}

/// Returns the leaf of a present entry of `level`, or `None` if a reserved bit is set, or if the entry is global or
/// writable without being readable.
pub(crate) fn leaf(_level: u8, entry: u64) -> Option<Leaf> {
    // A global entry of user memory would survive the invalidation of its address space.
    if entry & (RESERVED | GLOBAL) != 0 || entry & (READ | WRITE) == WRITE {
        return None;
    }
    // The indices in the page attribute table of x86-64 that select the same memory types.
    let pat = match (entry & MEMORY_TYPE) >> MEMORY_TYPE_SHIFT {
        // PMA: memory is write-back.
        0 => 0,
        // NC: no caches, and stores may be combined.
        1 => 1,
        // IO.
        2 => 3,
        _ => return None,
    };
    Some(Leaf {
        address: address(entry),
        pat,
    })
}

fn address(entry: u64) -> u64 {
    (entry & NUMBER) >> NUMBER_SHIFT << 12
}

/// Returns `None`, because a kernel in supervisor mode cannot read `menvcfg`, which selects how the processor uses the
/// tables.
pub(crate) fn registers(_uses: Uses, _is_wrong: bool) -> Option<Infallible> {
    None
}
