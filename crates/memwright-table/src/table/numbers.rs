//! The numbers of entries of a table, which its metadata contains in one word ([`Meta::live`](crate::frame::Meta)).
//!
//! The lowest bits contain the number of entries that are not empty. In a last-level table, the next bits contain the
//! number of pages whose entries hold references, including migrating entries, and the highest bits contain the number
//! of swap entries. From these numbers, a fork that shares the table counts the child's pages without reading the
//! entries.

use super::level::ENTRIES;
use crate::arch::word;
use crate::entry::Bits;

/// The number of bits of each number.
const EACH: u32 = 10;
/// One entry of any kind.
pub(super) const LIVE: u32 = 1;
/// One page whose entry holds a reference, in addition to [`LIVE`].
pub(super) const COUNTED: u32 = 1 << EACH;
/// One swap entry, in addition to [`LIVE`].
pub(super) const SWAPPED: u32 = 1 << (2 * EACH);
const MASK: u32 = LIVE.wrapping_shl(EACH) - 1;

const _: () = assert!(ENTRIES < 1 << EACH && 3 * EACH <= u32::BITS);

/// Returns the number of entries that are not empty.
#[inline]
pub(super) const fn live(numbers: u32) -> u32 {
    numbers & MASK
}

/// Returns the number of pages whose entries hold references, in a last-level table.
pub(super) const fn counted(numbers: u32) -> u32 {
    (numbers / COUNTED) & MASK
}

/// Returns the number of swap entries, in a last-level table.
pub(super) const fn swapped(numbers: u32) -> u32 {
    (numbers / SWAPPED) & MASK
}

/// The total numbers of the entries of some last-level tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableTotals {
    /// The number of tables.
    pub tables: u64,
    /// The number of entries that are not empty.
    pub live: u64,
    /// The number of entries that map pages and hold references.
    pub counted: u64,
    /// The number of swap entries.
    pub swapped: u64,
}

impl TableTotals {
    /// Adds the numbers of the tables that `sum` covers.
    pub(super) fn add(&mut self, sum: Sum) {
        self.tables += sum.tables;
        let outer = sum.all.wrapping_sub(sum.counted);
        self.live += outer % (1 << (2 * EACH));
        self.counted += sum.counted >> EACH;
        self.swapped += outer >> (2 * EACH);
    }

    /// Returns the number of special pages and markers.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.live - self.counted - self.swapped
    }
}

/// Returns what a page with `bits` adds to the numbers of a last-level table.
#[inline(always)]
pub(super) const fn of_bits(bits: Bits) -> u32 {
    of_page(bits.bits(), Bits::BORROWED.bits())
}

/// Returns what a page adds to the numbers of a last-level table. The bit `borrowed` of `word` is set if its entry
/// holds no reference.
#[inline(always)]
const fn of_page(word: u64, borrowed: u64) -> u32 {
    LIVE + COUNTED - ((word >> (borrowed.trailing_zeros() - EACH)) as u32 & COUNTED)
}

/// Returns what the entry `word` adds to the numbers of a last-level table.
#[inline(always)]
pub(super) fn of_entry(word: u64) -> u32 {
    if word::has_rights(word) {
        of_page(word, word::mask(Bits::BORROWED))
    } else if word == 0 {
        0
    } else {
        of_other(word)
    }
}

/// Whether `old` and `new` certainly add the same to the numbers of a last-level table. True if both map pages with
/// rights, and either both pages or neither of them are special.
#[inline(always)]
pub(super) fn are_equal(old: u64, new: u64) -> bool {
    word::are_pages(old & new, 1) && (old ^ new) & word::mask(Bits::BORROWED) == 0
}

/// Returns what the entry `word`, which is neither empty nor a page with rights, adds to the numbers of a last-level
/// table.
#[cold]
#[inline(never)]
fn of_other(word: u64) -> u32 {
    if word::is_present(word) {
        of_page(word, word::mask(Bits::BORROWED))
    } else if word::swapped(word).is_some() {
        LIVE + SWAPPED
    } else if word::is_migrating(word) {
        LIVE + COUNTED
    } else {
        LIVE
    }
}

/// The sum of the numbers of the tables below one upper table, which is cheaper to extend than [`TableTotals`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    tables: u64,
    /// The sum of the words of the metadata. The sums of adjacent numbers overlap in it.
    all: u64,
    /// The sum of the middle numbers, at their position in the word. `all` minus this sum leaves the sums of the lowest
    /// and the highest numbers, which do not overlap.
    counted: u64,
}

const _: () = assert!(ENTRIES * ENTRIES < 1 << (2 * EACH));

impl Sum {
    /// Adds a table whose metadata contains `numbers`.
    #[inline(always)]
    pub(super) fn add(&mut self, numbers: u32) {
        // None of the sums of an upper table overflows.
        self.tables = self.tables.wrapping_add(1);
        self.all = self.all.wrapping_add(numbers.into());
        self.counted = self
            .counted
            .wrapping_add((numbers & (MASK * COUNTED)).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_of_each_kind_has_its_numbers() {
        let all = ENTRIES as u32;
        for (unit, expected) in [
            (LIVE, (all, 0, 0)),
            (LIVE + COUNTED, (all, all, 0)),
            (LIVE + SWAPPED, (all, 0, all)),
            (of_bits(Bits::empty()), (all, all, 0)),
            (of_bits(Bits::BORROWED), (all, 0, 0)),
        ] {
            let numbers = unit * all;
            let found = (live(numbers), counted(numbers), swapped(numbers));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_sum_of_an_upper_table_has_the_total_of_each_kind() {
        let (mut sum, mut one_by_one) = (Sum::default(), TableTotals::default());
        for table in 0..ENTRIES as u32 {
            let (pages, swapped) = (table, ENTRIES as u32 - table);
            let numbers = pages * (LIVE + COUNTED) + swapped * (LIVE + SWAPPED);
            sum.add(numbers);
            one_by_one.tables += 1;
            one_by_one.live += ENTRIES as u64;
            one_by_one.counted += u64::from(pages);
            one_by_one.swapped += u64::from(swapped);
        }
        let mut totals = TableTotals::default();
        totals.add(sum);
        totals.add(sum);
        assert_eq!(totals.tables, 2 * one_by_one.tables);
        assert_eq!(totals.live, 2 * one_by_one.live);
        assert_eq!(totals.counted, 2 * one_by_one.counted);
        assert_eq!(totals.swapped, 2 * one_by_one.swapped);
        assert_eq!(totals.others(), 0);
    }
}
