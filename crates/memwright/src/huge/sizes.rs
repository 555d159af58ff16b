//! Multi-size THP: folios of 16 KiB to 1 MiB that a first touch allocates and 4 KiB entries map, beside huge pages of 2
//! MiB (Linux 7.2 Documentation/admin-guide/mm/transhuge.rst).

use core::array;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use memwright_table::{FOLIO_ORDER, Page, PageRange};

use super::{HugeMode, SharedSizeMode, SizeMode};
use crate::settled::settle;

/// The order of the smallest folio: 16 KiB (`THP_ORDERS_ALL_ANON`).
pub const SMALLEST_ORDER: u8 = 2;
/// The order of the largest folio: 2 MiB.
pub const LARGEST_ORDER: u8 = FOLIO_ORDER;
/// The number of sizes, including 2 MiB.
const SIZES: usize = (FOLIO_ORDER - SMALLEST_ORDER + 1) as usize;

/// A set of folio orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolioOrders(u16);

impl FolioOrders {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// The orders of folios that 4 KiB entries map: all except that of 2 MiB.
    pub const OF_PAGES: Self = Self((1 << FOLIO_ORDER) - (1 << SMALLEST_ORDER));

    /// Whether the set is empty.
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

    /// Returns the orders for which `fits` holds.
    #[must_use]
    pub fn filter(self, fits: impl Fn(u8) -> bool) -> Self {
        let fitting = self.largest_first().filter(|order| fits(*order));
        fitting.fold(Self::NONE, Self::with)
    }

    /// Returns the orders whose folio around `page` is inside `range`.
    #[must_use]
    pub fn around(self, page: Page, range: PageRange) -> Self {
        self.filter(|order| {
            let folio = folio_around(page, order);
            range.start <= folio.start && folio.end <= range.end
        })
    }

    /// Returns the orders whose folio around `page`, which maps page `index` of an object, is inside `range` and
    /// aligned equally in the object (Linux 7.2 `include/linux/huge_mm.h`, `thp_vma_suitable_order`).
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

/// Like `folio_around`, for numbers of pages in memory or in an object.
pub(crate) const fn block_around(number: u64, order: u8) -> Range<u64> {
    let pages = 1 << order;
    let start = number & !(pages - 1);
    start..start + pages
}

/// The settings and counts of each size.
#[derive(Debug)]
pub struct SizeSettings {
    /// Which areas get folios of each size: a [`SizeMode`].
    modes: [AtomicU8; SIZES],
    /// Which shared anonymous memory gets folios of each size: a [`SharedSizeMode`].
    shared: [AtomicU8; SIZES],
    counts: [SizeCounts; SIZES],
    /// Whether any size below 2 MiB is enabled. Faults read the other settings only if this is set.
    any_of_pages: AtomicU8,
}

/// The counts of one size.
#[derive(Debug, Default)]
pub struct SizeCounts {
    /// Folios that faults allocated for anonymous memory (`anon_fault_alloc`).
    pub filled: AtomicU64,
    /// Failed allocations of these (`anon_fault_fallback`).
    pub refused: AtomicU64,
    /// Folios into which pages were swapped in (`swpin`).
    pub swapped_in: AtomicU64,
    /// Failed allocations of these, so that smaller folios or single pages were used (`swpin_fallback`).
    pub swapped_in_smaller: AtomicU64,
    /// Folios that faults allocated for shared memory (`shmem_alloc`).
    pub shared_filled: AtomicU64,
    /// Failed allocations of these (`shmem_fallback`).
    pub shared_refused: AtomicU64,
    /// 2 MiB entries that were set to map a complete huge page of shared memory (`thp_file_mapped`).
    pub shared_mapped: AtomicU64,
}

impl Default for SizeSettings {
    fn default() -> Self {
        let is_huge = |index| index == SIZES - 1;
        Self {
            modes: array::from_fn(|index| {
                AtomicU8::new(if is_huge(index) {
                    SizeMode::Inherit as u8
                } else {
                    SizeMode::Never as u8
                })
            }),
            shared: array::from_fn(|index| {
                AtomicU8::new(if is_huge(index) {
                    SharedSizeMode::Inherit as u8
                } else {
                    SharedSizeMode::Never as u8
                })
            }),
            counts: array::from_fn(|_| SizeCounts::default()),
            any_of_pages: AtomicU8::new(0),
        }
    }
}

const fn index(order: u8) -> usize {
    assert!(
        order >= SMALLEST_ORDER && order <= FOLIO_ORDER,
        "no size has this order"
    );
    (order - SMALLEST_ORDER) as usize
}

impl SizeSettings {
    /// Returns which areas get folios of this order.
    ///
    /// # Panics
    /// If `order` is not between [`SMALLEST_ORDER`] and [`FOLIO_ORDER`]. The same holds for the other methods with an
    /// order.
    pub fn mode(&self, order: u8) -> SizeMode {
        SizeMode::of(self.modes[index(order)].load(Ordering::Relaxed))
    }

    /// Sets which areas get folios of this order from now on.
    pub fn set_mode(&self, order: u8, mode: SizeMode) {
        self.modes[index(order)].store(mode as u8, Ordering::Relaxed);
        let is_some = |order| self.mode(order) != SizeMode::Never;
        settle(
            || FolioOrders::OF_PAGES.largest_first().any(is_some),
            |any| {
                self.any_of_pages.store((*any).into(), Ordering::Relaxed);
            },
        );
    }

    /// Returns which shared anonymous memory gets folios of this order.
    pub fn shared_mode(&self, order: u8) -> SharedSizeMode {
        SharedSizeMode::of(self.shared[index(order)].load(Ordering::Relaxed))
    }

    /// Sets which shared anonymous memory gets folios of this order from now on.
    pub(super) fn set_shared_mode(&self, order: u8, mode: SharedSizeMode) {
        self.shared[index(order)].store(mode as u8, Ordering::Relaxed);
    }

    /// Returns the counts of this order.
    pub fn counts(&self, order: u8) -> &SizeCounts {
        &self.counts[index(order)]
    }

    /// Whether any anonymous memory gets folios that 4 KiB entries map.
    #[inline(always)]
    pub(crate) fn any_of_pages(&self) -> bool {
        self.any_of_pages.load(Ordering::Relaxed) != 0
    }

    /// Returns the orders below 2 MiB whose mode `allows` accepts; `inherited` is the mode for all sizes.
    pub(crate) fn orders(
        &self,
        inherited: HugeMode,
        allows: impl Fn(HugeMode) -> bool,
    ) -> FolioOrders {
        FolioOrders::OF_PAGES.filter(|order| allows(self.mode(order).with(inherited)))
    }
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
            // The page, its index in the object, the area.
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

    #[test]
    fn a_size_is_off_until_somebody_sets_it() {
        let settings = SizeSettings::default();
        let always = |settings: &SizeSettings| {
            settings.orders(HugeMode::Always, |mode| mode == HugeMode::Always)
        };
        assert_eq!(settings.mode(FOLIO_ORDER), SizeMode::Inherit);
        assert!(!settings.any_of_pages() && always(&settings).is_empty());
        settings.set_mode(FOLIO_ORDER, SizeMode::Always);
        assert!(!settings.any_of_pages());
        settings.set_mode(4, SizeMode::Inherit);
        settings.set_mode(2, SizeMode::Always);
        settings.set_mode(8, SizeMode::Advised);
        assert!(settings.any_of_pages());
        assert_eq!(always(&settings), FolioOrders::NONE.with(4).with(2));
        for order in [2, 4, 8] {
            settings.set_mode(order, SizeMode::Never);
        }
        assert!(!settings.any_of_pages() && always(&settings).is_empty());
    }
}
