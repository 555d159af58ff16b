//! Multi-size THP: folios of 16 KiB to 1 MiB, in addition to huge pages of 2 MiB. A first touch allocates such a folio,
//! and 4 KiB entries map it (Linux 7.2 Documentation/admin-guide/mm/transhuge.rst).

use core::array;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use memwright_table::FOLIO_ORDER;

use crate::types::folio_orders::{FolioOrders, SIZES, SMALLEST_ORDER};
use crate::types::huge::{SharedSizeMode, SizeMode};
use crate::types::settled::settle;

/// The settings and counts of each size.
#[derive(Debug)]
pub struct SizeSettings {
    /// The choice, for each size, of the areas that get folios of the size: a [`SizeMode`].
    modes: [AtomicU8; SIZES],
    /// The choice, for each size, of the shared anonymous memory that gets folios of the size: a [`SharedSizeMode`].
    shared: [AtomicU8; SIZES],
    counts: [SizeCounts; SIZES],
    /// Whether any folio size below 2 MiB is enabled. Only then do faults read the other settings.
    pub(super) any_of_pages: AtomicU8,
}

/// The counts of one size.
#[derive(Debug, Default)]
pub struct SizeCounts {
    /// The number of folios that faults allocated for anonymous memory (`anon_fault_alloc`).
    pub filled: AtomicU64,
    /// The number of failed allocations of folios for anonymous memory in faults (`anon_fault_fallback`).
    pub refused: AtomicU64,
    /// The number of folios into which pages were swapped in (`swpin`).
    pub swapped_in: AtomicU64,
    /// The number of failed allocations of folios for swap-in. Smaller folios or single pages were allocated instead
    /// (`swpin_fallback`).
    pub swapped_in_smaller: AtomicU64,
    /// The number of folios that faults allocated for shared memory (`shmem_alloc`).
    pub shared_filled: AtomicU64,
    /// The number of failed allocations of folios for shared memory in faults (`shmem_fallback`).
    pub shared_refused: AtomicU64,
    /// The number of 2 MiB entries that were set to map a complete huge page of shared memory (`thp_file_mapped`).
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
    /// If `order` is not between [`SMALLEST_ORDER`] and [`FOLIO_ORDER`]. The other methods with a parameter `order`
    /// panic in the same case.
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
}
