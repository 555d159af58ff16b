//! Sets of folio orders, and the folios of an order around a page.

use core::ops::Range;
use memwright_table::{FOLIO_ORDER, Page, PageRange};

/// The order of the smallest folio: 16 KiB (`THP_ORDERS_ALL_ANON`).
pub const SMALLEST_ORDER: u8 = 2;

/// The order of the largest folio: 2 MiB.
pub const LARGEST_ORDER: u8 = FOLIO_ORDER;

/// The number of folio sizes, including the size of 2 MiB.
pub(crate) const SIZES: usize = (FOLIO_ORDER - SMALLEST_ORDER + 1) as usize;

/// A set of folio orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolioOrders(u16);

impl FolioOrders {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The orders of folios that are mapped by 4 KiB entries: all orders below that of 2 MiB.
    pub const OF_PAGES: Self = Self((1 << FOLIO_ORDER) - (1 << SMALLEST_ORDER));

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set with `order` added.
    #[must_use]
    pub const fn with(self, order: u8) -> Self {
        Self(self.0 | 1 << order)
    }

    /// Returns the orders in both sets.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Returns the orders, largest first.
    pub fn largest_first(self) -> impl Iterator<Item = u8> {
        (0..16).rev().filter(move |order| self.0 & 1 << order != 0)
    }

    /// Returns the orders of the set for which `fits` returns true.
    #[must_use]
    pub fn filter(self, fits: impl Fn(u8) -> bool) -> Self {
        let fitting = self.largest_first().filter(|order| fits(*order));
        fitting.fold(Self::NONE, Self::with)
    }

    /// Returns the orders of the set whose naturally aligned folio around `page` is inside `range`.
    #[must_use]
    pub fn around(self, page: Page, range: PageRange) -> Self {
        self.filter(|order| {
            let folio = folio_around(page, order);
            range.start <= folio.start && folio.end <= range.end
        })
    }

    /// Returns the orders of the set whose folio around `page` is inside `range` and naturally aligned, both in the
    /// address space and in the object. `page` maps page `index` of the object (Linux 7.2 `include/linux/huge_mm.h`,
    /// `thp_vma_suitable_order`).
    #[must_use]
    pub fn around_shown(self, page: Page, index: u64, range: PageRange) -> Self {
        let apart = page.number() ^ index;
        let aligned = self.filter(|order| apart & ((1 << order) - 1) == 0);
        aligned.around(page, range)
    }
}

/// Returns the naturally aligned range of `order` that contains `page`.
#[must_use]
pub const fn folio_around(page: Page, order: u8) -> PageRange {
    let Range { start, end } = block_around(page.number(), order);
    PageRange::new(Page::new(start), Page::new(end))
}

/// Like `folio_around`, for `number`, which is the number of a page in an address space or in an object.
pub(crate) const fn block_around(number: u64, order: u8) -> Range<u64> {
    let pages = 1 << order;
    let start = number & !(pages - 1);
    start..start + pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn range(start: u64, end: u64) -> PageRange {
        PageRange::new(Page::new(start), Page::new(end))
    }

    #[test]
    fn which_folios_lie_within_a_range() {
        let all = FolioOrders::OF_PAGES;
        #[rustfmt::skip]
        let rows: [(u64, PageRange, &[u8]); 8] = [
            (512, range(512, 1024), &[8, 7, 6, 5, 4, 3, 2]),
            (515, range(512, 516),  &[2]),
            (515, range(512, 515),  &[]),
            (515, range(513, 1024), &[]),
            (767, range(640, 1024), &[7, 6, 5, 4, 3, 2]),
            (768, range(640, 1024), &[8, 7, 6, 5, 4, 3, 2]),
            (7,   range(0, 12),     &[3, 2]),
            (9,   range(0, 12),     &[2]),
        ];
        for (page, within, orders) in rows {
            let found: Vec<u8> = all
                .around(Page::new(page), within)
                .largest_first()
                .collect();
            assert_eq!(found, orders, "{page} in {within:?}");
        }
    }

    #[test]
    fn which_folios_an_area_shows_whole() {
        #[rustfmt::skip]
        let rows: [(u64, u64, PageRange, &[u8]); 6] = [
            // Columns: the page, its index in the object, the area, the expected orders.
            (512, 512, range(512, 1024), &[8, 7, 6, 5, 4, 3, 2]),
            (512, 0,   range(512, 1024), &[8, 7, 6, 5, 4, 3, 2]),
            (512, 16,  range(512, 1024), &[4, 3, 2]),
            (520, 4,   range(512, 1024), &[2]),
            (520, 3,   range(512, 1024), &[]),
            (512, 16,  range(512, 527),  &[3, 2]),
        ];
        for (page, index, area, orders) in rows {
            let found: Vec<u8> = FolioOrders::OF_PAGES
                .around_shown(Page::new(page), index, area)
                .largest_first()
                .collect();
            assert_eq!(found, orders, "{page} shows {index} in {area:?}");
        }
    }
}
