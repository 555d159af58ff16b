//! The levels of page tables: the number of entries of a table, and the pages that an entry covers.

use crate::addr::{Frame, Page};

/// The maximum of [`Architecture::LEVELS`](crate::Architecture::LEVELS).
const MOST_LEVELS: u8 = 4;
/// The number of entries of a table.
pub(crate) const ENTRIES: usize = 512;
/// The number of entries of the root that belong to user memory. The entries of kernel memory follow.
pub(crate) const USER_ENTRIES: usize = 256;

/// The number of pages that one entry at `level` covers.
#[inline]
pub(crate) const fn slot_pages(level: u8) -> u64 {
    1u64.wrapping_shl(shift(level))
}

/// The index of the entry for `page` in a table at `level`.
#[inline]
pub(crate) const fn slot_index(page: Page, level: u8) -> usize {
    page.number().wrapping_shr(shift(level)) as usize & (ENTRIES - 1)
}

/// The binary logarithm of [`slot_pages`]. A level is small, so this needs no checks for overflow, which would double
/// the cost of finding an entry.
#[inline]
const fn shift(level: u8) -> u32 {
    debug_assert!(0 < level && level <= MOST_LEVELS + 1);
    (level as u32).wrapping_sub(1).wrapping_mul(9)
}

/// The level of the tables whose entries point to last-level tables.
pub(crate) const ABOVE: u8 = 2;
/// The number of pages that a last-level table maps.
pub(crate) const TABLE_PAGES: u64 = slot_pages(ABOVE);

/// The value of `owner` in the metadata of a last-level table that several roots share (`shared.rs`). It differs from
/// the value of every root. A shared table keeps this value when only one root is left, until that root takes the
/// table.
pub(crate) const SHARED_OWNER: u64 = u64::MAX;

/// The value of `owner` in the metadata of a table: the root's frame number, and the level of the table.
#[inline]
pub(crate) const fn table_owner(root: Frame, level: u8) -> u64 {
    (level as u64) << 32 | root.number() as u64
}
