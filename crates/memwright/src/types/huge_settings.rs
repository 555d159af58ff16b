//! Transparent huge pages: the settings of a machine (Linux 7.2 `mm/huge_memory.c`).

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use memwright_table::{FOLIO_FRAMES, FOLIO_ORDER};

use crate::types::folio_orders::FolioOrders;
use crate::types::huge::{SharedMode, SharedSetting, SharedSizeMode};
use crate::types::settled::settle;
use crate::types::size_settings::SizeSettings;

/// The huge-page settings except `enabled`, which is a [policy](crate::Policy). Some settings have no effect here: they
/// are stored and reported for programs that save and restore all settings.
#[derive(Debug)]
pub struct HugeSettings {
    /// The `defrag` mode, as its index among the words of the sysfs file. It has no effect, because no allocation
    /// compacts memory.
    pub defrag: AtomicU8,
    /// Which shared memory gets huge pages: a [`SharedMode`].
    shared: AtomicU8,
    /// Whether any shared memory may get large folios of less than 2 MiB. Faults read the settings of these sizes only
    /// if it is set.
    shared_of_pages: AtomicBool,
    /// Whether a file system whose files may have huge pages has been mounted.
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
    /// Whether allocations of khugepaged may compact memory. The setting has no effect, because no allocation does.
    pub defrag: AtomicBool,
    /// Milliseconds between scans.
    pub sleep: AtomicU32,
    /// Milliseconds that khugepaged sleeps after it failed to allocate a huge page.
    pub allocation_sleep: AtomicU32,
    /// Pages examined by each scan (`pages_to_scan`).
    pub pages: AtomicU32,
    /// The maximum number of missing pages among the 512 pages of a collapse (`max_ptes_none`).
    pub most_missing: AtomicU32,
    /// The maximum number of pages in swap among the 512 pages of a collapse (`max_ptes_swap`). The collapse swaps them
    /// in.
    pub most_swapped: AtomicU32,
    /// The maximum number of pages with other users among the 512 pages of a collapse (`max_ptes_shared`).
    pub most_shared: AtomicU32,
    /// Huge pages that khugepaged has collapsed (`pages_collapsed`).
    pub collapsed: AtomicU64,
    /// Complete scans of all memory by khugepaged (`full_scans`).
    pub rounds: AtomicU64,
    /// Pages that were read from a swap device for a collapse, by khugepaged or `MADV_COLLAPSE`.
    pub read_back: AtomicU64,
}

/// The value of `zero` while no huge zero page is allocated.
pub(crate) const NONE: u32 = u32::MAX;

impl Default for HugeSettings {
    fn default() -> Self {
        Self {
            // The index of the word `madvise`.
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

    /// Sets which shared anonymous memory gets pages of this order from now on.
    ///
    /// # Panics
    /// If `order` is not between [`SMALLEST_ORDER`](crate::SMALLEST_ORDER) and [`FOLIO_ORDER`].
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

    /// Returns whether any shared memory may get large folios of less than 2 MiB.
    #[inline(always)]
    pub(crate) fn any_shared_of_pages(&self) -> bool {
        self.shared_of_pages.load(Ordering::Relaxed)
    }

    /// Returns the orders below 2 MiB that a first touch of shared memory with this setting may allocate. `asked` is
    /// whether the area has `MADV_HUGEPAGE` (Linux 7.2 `mm/shmem.c`, `shmem_allowable_huge_orders`). A file that gets
    /// huge pages may have folios of all of these orders, unless the mode is `Force`; any other file gets none.
    pub(crate) fn shared_orders(&self, setting: SharedSetting, asked: bool) -> FolioOrders {
        let all = self.shared_mode();
        let of_file = |mode: SharedMode| {
            if mode != SharedMode::Force && mode.allows(asked) {
                FolioOrders::OF_PAGES
            } else {
                FolioOrders::NONE
            }
        };
        match setting {
            SharedSetting::File => of_file(all),
            SharedSetting::Mount(mode) => of_file(mode.of_mount(all)),
            SharedSetting::Anonymous => {
                let mode = |order| self.sizes.shared_mode(order).with(all);
                FolioOrders::OF_PAGES.filter(|order| mode(order).allows(asked))
            }
        }
    }

    /// Returns the order of the largest folio that a first touch may allocate for shared memory with this setting, in
    /// any area. A file gets smaller folios only if it gets huge pages.
    pub(crate) fn largest_shared(&self, setting: SharedSetting) -> Option<u8> {
        if self.allows_shared(setting, true) {
            return Some(FOLIO_ORDER);
        }
        self.shared_orders(setting, true).largest_first().next()
    }

    /// Returns whether a first touch of shared memory with this setting allocates a huge page. `asked` is whether the
    /// area has `MADV_HUGEPAGE`.
    pub(crate) fn allows_shared(&self, setting: SharedSetting, asked: bool) -> bool {
        let mode = match setting {
            SharedSetting::File => self.shared_mode(),
            SharedSetting::Anonymous => {
                self.sizes.shared_mode(FOLIO_ORDER).with(self.shared_mode())
            }
            SharedSetting::Mount(mode) => mode.of_mount(self.shared_mode()),
        };
        mode.allows(asked)
    }

    /// Returns the number of huge zero pages: 1 after the first use, 0 before.
    pub fn zero_pages(&self) -> u64 {
        u64::from(self.zero.load(Ordering::Relaxed) != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_huge_pages_of_shared_memory() {
        use {SharedMode::*, SharedSizeMode as Size};
        #[rustfmt::skip]
        let rows = [
            // Columns: the mode for all sizes, the mode for this size, the effective mode of shared anonymous memory.
            (Never,   Size::Inherit, Never),
            (Always,  Size::Inherit, Always),
            (Never,   Size::Always,  Always),
            (Always,  Size::Never,   Never),
            (Advised, Size::WithinSize, WithinSize),
            (Never,   Size::Advised, Advised),
            (Deny,    Size::Always,  Deny),
            (Force,   Size::Always,  Never),
            (Force,   Size::Inherit, Force),
        ];
        for (all, size, expected) in rows {
            assert_eq!(size.with(all), expected, "{all:?} {size:?}");
        }
        for (mode, _) in SharedMode::ALL {
            assert_eq!(SharedMode::of(mode as u8), mode);
            assert_eq!(
                mode.allows(false),
                matches!(mode, Always | WithinSize | Force)
            );
            assert_eq!(mode.allows(true), !matches!(mode, Never | Deny));
        }
        for (mode, _) in SharedSizeMode::ALL {
            assert_eq!(SharedSizeMode::of(mode as u8), mode);
        }
    }

    #[test]
    fn which_folios_shared_memory_gets() {
        use {SharedMode::*, SharedSetting::*, SharedSizeMode as Size};
        let (none, all) = (FolioOrders::NONE, FolioOrders::OF_PAGES);
        let some = |orders: &[u8]| orders.iter().fold(none, |set, order| set.with(*order));
        let (anonymous, asked) = (some(&[2, 4]), some(&[2, 3, 4]));
        #[rustfmt::skip]
        let rows = [
            // Columns: the mode for all sizes; whether the area is advised; the orders of files; the orders of shared
            // anonymous memory. For the last column, the modes of the sizes are 16 KiB always, 32 KiB advised, 64 KiB
            // within the size, and 128 KiB inherited.
            (Never,      false, none, anonymous),
            (Never,      true,  none, asked),
            (Always,     false, all,  anonymous.with(5)),
            (WithinSize, false, all,  anonymous.with(5)),
            (Advised,    false, none, anonymous),
            (Advised,    true,  all,  asked.with(5)),
            (Deny,       true,  none, none),
            (Force,      false, none, some(&[5])),
        ];
        let settings = HugeSettings::default();
        for (order, mode) in [
            (2, Size::Always),
            (3, Size::Advised),
            (4, Size::WithinSize),
            (5, Size::Inherit),
        ] {
            settings.set_shared_size(order, mode);
        }
        for (mode, asked, of_files, of_anonymous) in rows {
            settings.set_shared_mode(mode);
            assert_eq!(settings.shared_orders(File, asked), of_files, "{mode:?}");
            assert_eq!(
                settings.shared_orders(Anonymous, asked),
                of_anonymous,
                "{mode:?}"
            );
        }
    }

    #[test]
    fn faults_are_told_whether_any_shared_memory_gets_folios() {
        let settings = HugeSettings::default();
        let largest = |settings: &HugeSettings| {
            [SharedSetting::File, SharedSetting::Anonymous]
                .map(|setting| settings.largest_shared(setting))
        };
        assert!(!settings.any_shared_of_pages());
        assert_eq!(largest(&settings), [None, None]);
        settings.set_shared_size(FOLIO_ORDER, SharedSizeMode::Always);
        assert!(!settings.any_shared_of_pages());
        assert_eq!(largest(&settings), [None, Some(FOLIO_ORDER)]);
        settings.set_shared_size(FOLIO_ORDER, SharedSizeMode::Inherit);
        settings.set_shared_size(4, SharedSizeMode::Advised);
        settings.set_shared_size(3, SharedSizeMode::WithinSize);
        assert!(settings.any_shared_of_pages());
        assert_eq!(largest(&settings), [None, Some(4)]);
        settings.set_shared_mode(SharedMode::Deny);
        assert!(!settings.any_shared_of_pages());
        assert_eq!(largest(&settings), [None, None]);
        settings.set_shared_mode(SharedMode::Always);
        assert_eq!(largest(&settings), [Some(FOLIO_ORDER); 2]);
        settings.set_shared_size(3, SharedSizeMode::Never);
        settings.set_shared_size(4, SharedSizeMode::Never);
        settings.set_shared_mode(SharedMode::Advised);
        assert!(settings.any_shared_of_pages());
        settings.set_shared_mode(SharedMode::Force);
        assert!(!settings.any_shared_of_pages());
    }

    #[test]
    fn which_files_of_a_mount_get_huge_pages() {
        use SharedMode::*;
        #[rustfmt::skip]
        let rows = [
            // Columns: the mode for all sizes; the mode of the mount; whether files get 2 MiB; whether files get
            // smaller orders. Each of the last two has a result for areas that are not advised, and one for areas that
            // are.
            (Never,  Always,     [true, true],   [true, true]),
            (Never,  WithinSize, [true, true],   [true, true]),
            (Never,  Advised,    [false, true],  [false, true]),
            (Always, Never,      [false, false], [false, false]),
            (Deny,   Always,     [false, false], [false, false]),
            (Force,  Never,      [true, true],   [false, false]),
        ];
        let settings = HugeSettings::default();
        for (all, mount, huge, smaller) in rows {
            settings.set_shared_mode(all);
            let setting = SharedSetting::Mount(mount);
            let allows = |asked| settings.allows_shared(setting, asked);
            let orders = |asked| !settings.shared_orders(setting, asked).is_empty();
            assert_eq!([allows(false), allows(true)], huge, "{all:?}, {mount:?}");
            assert_eq!([orders(false), orders(true)], smaller, "{all:?}, {mount:?}");
        }
    }

    #[test]
    fn faults_ask_once_a_mount_has_huge_pages() {
        let settings = HugeSettings::default();
        settings.note_mount(SharedMode::Never);
        assert!(!settings.any_shared_of_pages());
        settings.note_mount(SharedMode::Advised);
        assert!(settings.any_shared_of_pages());
        settings.set_shared_mode(SharedMode::Deny);
        assert!(!settings.any_shared_of_pages());
        settings.set_shared_mode(SharedMode::Never);
        assert!(settings.any_shared_of_pages());
    }
}
