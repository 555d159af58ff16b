//! The choice, from the settings, of the memory that gets huge pages and folios.

use core::sync::atomic::Ordering;
use memwright_table::FOLIO_ORDER;

use crate::types::folio_orders::FolioOrders;
use crate::types::huge::{HugeMode, SharedMode, SharedSetting};
use crate::types::huge_settings::HugeSettings;
use crate::types::size_settings::SizeSettings;

impl HugeSettings {
    /// Returns whether any shared memory may get large folios of less than 2 MiB.
    #[inline(always)]
    pub(crate) fn any_shared_of_pages(&self) -> bool {
        self.shared_of_pages.load(Ordering::Relaxed)
    }

    /// Returns the orders below 2 MiB that a first touch of shared memory with `setting` may allocate. `asked` states
    /// whether the area has `MADV_HUGEPAGE` (Linux 7.2 `mm/shmem.c`, `shmem_allowable_huge_orders`). A file that gets
    /// huge pages may have folios of all of these orders, unless the mode is `Force`. Any other file gets none.
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

    /// Returns the order of the largest folio that a first touch may allocate for shared memory with `setting`, in any
    /// area. A file gets folios smaller than 2 MiB only if it gets huge pages.
    pub(crate) fn largest_shared(&self, setting: SharedSetting) -> Option<u8> {
        if self.allows_shared(setting, true) {
            return Some(FOLIO_ORDER);
        }
        self.shared_orders(setting, true).largest_first().next()
    }

    /// Returns whether a first touch of shared memory with `setting` allocates a huge page. `asked` states whether the
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
}

impl SizeSettings {
    /// Returns whether any anonymous memory gets folios that 4 KiB entries map.
    #[inline(always)]
    pub(crate) fn any_of_pages(&self) -> bool {
        self.any_of_pages.load(Ordering::Relaxed) != 0
    }

    /// Returns the orders below 2 MiB whose mode `allows` accepts. `inherited` is the mode for all sizes.
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
    use crate::types::huge::{SharedSizeMode, SizeMode};

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
            // smaller orders. Each of the last two columns has two results: for areas that are not advised, and for
            // areas that are.
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
