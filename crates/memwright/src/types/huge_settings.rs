//! Transparent huge pages: the settings of a machine (Linux 7.2 `mm/huge_memory.c`).

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use memwright_table::FOLIO_FRAMES;

use crate::types::huge::{SharedMode, SharedSetting, SharedSizeMode};
use crate::types::settled::settle;
use crate::types::size_settings::SizeSettings;

/// The settings of huge pages, except `enabled`, which is a [policy](crate::Policy). Some of these settings have no
/// effect here: they are stored and reported for programs that save and restore all settings.
#[derive(Debug)]
pub struct HugeSettings {
    /// The `defrag` mode, as its index among the words of the sysfs file. It has no effect, because no allocation
    /// compacts memory.
    pub defrag: AtomicU8,
    /// The choice of the shared memory that gets huge pages: a [`SharedMode`].
    shared: AtomicU8,
    /// Whether any shared memory may get large folios of less than 2 MiB. Only then do faults read the settings of
    /// these sizes.
    pub(super) shared_of_pages: AtomicBool,
    /// Whether a file system was ever mounted whose files may have huge pages.
    mounts: AtomicBool,
    /// The settings and counts of each folio size.
    pub sizes: SizeSettings,
    /// Whether a read of untouched memory maps the huge zero page.
    pub zero_page: AtomicBool,
    /// The settings of khugepaged.
    pub scan: ScanSettings,
    /// The frame number of the huge zero page, or [`NONE`] before it is allocated.
    pub(crate) zero: AtomicU32,
}

/// The settings and counts of khugepaged (`khugepaged/`).
#[derive(Debug)]
pub struct ScanSettings {
    /// Whether allocations of khugepaged may compact memory. The setting has no effect, because no allocation compacts
    /// memory.
    pub defrag: AtomicBool,
    /// The time between two scans, in milliseconds.
    pub sleep: AtomicU32,
    /// The time that khugepaged sleeps after it failed to allocate a huge page, in milliseconds.
    pub allocation_sleep: AtomicU32,
    /// The number of pages that each scan examines (`pages_to_scan`).
    pub pages: AtomicU32,
    /// The maximum number of missing pages among the 512 pages of a collapse (`max_ptes_none`).
    pub most_missing: AtomicU32,
    /// The maximum number of pages in swap among the 512 pages of a collapse (`max_ptes_swap`). The collapse swaps them
    /// in.
    pub most_swapped: AtomicU32,
    /// The maximum number of pages with other users among the 512 pages of a collapse (`max_ptes_shared`).
    pub most_shared: AtomicU32,
    /// The number of huge pages that khugepaged has collapsed (`pages_collapsed`).
    pub collapsed: AtomicU64,
    /// The number of complete scans of all memory by khugepaged (`full_scans`).
    pub rounds: AtomicU64,
    /// The number of pages that were read from a swap device for a collapse, by khugepaged or `MADV_COLLAPSE`.
    pub read_back: AtomicU64,
}

/// The value of `zero` while no huge zero page is allocated.
pub(crate) const NONE: u32 = u32::MAX;

impl Default for HugeSettings {
    fn default() -> Self {
        Self {
            // The index of the word `madvise` in the sysfs file `defrag`.
            defrag: AtomicU8::new(3),
            shared: AtomicU8::new(SharedMode::Never as u8),
            shared_of_pages: AtomicBool::new(false),
            mounts: AtomicBool::new(false),
            sizes: SizeSettings::default(),
            zero_page: AtomicBool::new(true),
            scan: ScanSettings {
                defrag: AtomicBool::new(true),
                sleep: AtomicU32::new(10_000),
                allocation_sleep: AtomicU32::new(60_000),
                pages: AtomicU32::new(8 * FOLIO_FRAMES),
                most_missing: AtomicU32::new(FOLIO_FRAMES - 1),
                most_swapped: AtomicU32::new(FOLIO_FRAMES / 8),
                most_shared: AtomicU32::new(FOLIO_FRAMES / 2),
                collapsed: AtomicU64::new(0),
                rounds: AtomicU64::new(0),
                read_back: AtomicU64::new(0),
            },
            zero: AtomicU32::new(NONE),
        }
    }
}

impl HugeSettings {
    /// Returns which shared memory gets huge pages.
    pub fn shared_mode(&self) -> SharedMode {
        SharedMode::of(self.shared.load(Ordering::Relaxed))
    }

    /// Sets which shared memory gets huge pages from now on.
    pub fn set_shared_mode(&self, mode: SharedMode) {
        self.shared.store(mode as u8, Ordering::Relaxed);
        self.note_shared();
    }

    /// Sets which shared anonymous memory gets folios of order `order` from now on.
    ///
    /// # Panics
    /// If `order` is not between [`SMALLEST_ORDER`](crate::SMALLEST_ORDER) and [`LARGEST_ORDER`](crate::LARGEST_ORDER).
    pub fn set_shared_size(&self, order: u8, mode: SharedSizeMode) {
        self.sizes.set_shared_mode(order, mode);
        self.note_shared();
    }

    /// Records that a file system with huge-page mode `mode` was mounted.
    pub(crate) fn note_mount(&self, mode: SharedMode) {
        if mode != SharedMode::Never && !self.mounts.swap(true, Ordering::SeqCst) {
            self.note_shared();
        }
    }

    /// Updates `shared_of_pages` after a change of a setting of shared memory.
    fn note_shared(&self) {
        let has_any = |setting| !self.shared_orders(setting, true).is_empty();
        let is_any = || {
            let mount = SharedSetting::Mount(SharedMode::Always);
            has_any(SharedSetting::File)
                || has_any(SharedSetting::Anonymous)
                || self.mounts.load(Ordering::SeqCst) && has_any(mount)
        };
        settle(is_any, |any| {
            self.shared_of_pages.store(*any, Ordering::SeqCst);
        });
    }

    /// Returns the number of huge zero pages: 1 after the first use, 0 before.
    pub fn zero_pages(&self) -> u64 {
        u64::from(self.zero.load(Ordering::Relaxed) != NONE)
    }
}
