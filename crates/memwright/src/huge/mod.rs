//! Transparent huge pages: which memory gets them, and the settings (Linux 7.2 `include/linux/huge_mm.h` and
//! `mm/huge_memory.c`; Documentation/admin-guide/mm/transhuge.rst).
//!
//! A huge page is one entry over 2 MiB that holds one reference to a complete folio ([`memwright_table::frame`]). It is
//! created by a first touch (`fault/huge.rs`) or by a collapse (`space/collapse.rs`). It is removed when it is
//! unmapped, or split into 4 KiB entries when an operation covers a part of it. A huge page never extends beyond its
//! area: an operation that splits the area splits the huge entry.

mod largest;
mod sizes;

pub use sizes::{
    FolioOrders, LARGEST_ORDER, SMALLEST_ORDER, SizeCounts, SizeSettings, folio_around,
};

pub(crate) use largest::FolioUse;
pub(crate) use sizes::block_around;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use memwright_table::{FOLIO_FRAMES, FOLIO_ORDER, Frame, FrameKind, Machine, Page, PageRange};

use crate::memory::Memory;
use crate::settled::settle;
use crate::space::{AddressSpace, Area, Core};
use crate::stats::Row;
use crate::vma::AreaFlags;

/// Pages in a huge page.
pub const HUGE_PAGES: u64 = FOLIO_FRAMES as u64;

/// Which areas get huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HugeMode {
    /// All.
    Always = 0,
    /// Those advised by `MADV_HUGEPAGE`.
    Advised = 1,
    /// None.
    Never = 2,
}

impl HugeMode {
    /// Every mode with its name.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Always, "always"),
        (Self::Advised, "madvise"),
        (Self::Never, "never"),
    ];

    pub(crate) const fn of(value: u8) -> Self {
        match value {
            0 => Self::Always,
            1 => Self::Advised,
            _ => Self::Never,
        }
    }
}

/// Which areas get folios of one size (`/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SizeMode {
    /// All.
    Always = 0,
    /// According to the mode for all sizes.
    Inherit = 1,
    /// Those advised by `MADV_HUGEPAGE`.
    Advised = 2,
    /// None.
    Never = 3,
}

impl SizeMode {
    /// Every mode with its name.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Always, "always"),
        (Self::Inherit, "inherit"),
        (Self::Advised, "madvise"),
        (Self::Never, "never"),
    ];

    const fn of(value: u8) -> Self {
        match value {
            0 => Self::Always,
            1 => Self::Inherit,
            2 => Self::Advised,
            _ => Self::Never,
        }
    }

    /// Returns the effective mode, where the mode for all sizes is `inherited`.
    const fn with(self, inherited: HugeMode) -> HugeMode {
        match self {
            Self::Always => HugeMode::Always,
            Self::Inherit => inherited,
            Self::Advised => HugeMode::Advised,
            Self::Never => HugeMode::Never,
        }
    }
}

/// Which shared memory gets huge pages (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SharedMode {
    /// All.
    Always = 0,
    /// All, for huge pages inside the object's size. [`Always`](Self::Always) has the same limit here.
    WithinSize = 1,
    /// Memory mapped by areas advised by `MADV_HUGEPAGE`.
    Advised = 2,
    /// None, except by `MADV_COLLAPSE`.
    Never = 3,
    /// None, not even by `MADV_COLLAPSE`.
    Deny = 4,
    /// All, regardless of other settings.
    Force = 5,
}

impl SharedMode {
    /// Every mode with its name.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Always, "always"),
        (Self::WithinSize, "within_size"),
        (Self::Advised, "advise"),
        (Self::Never, "never"),
        (Self::Deny, "deny"),
        (Self::Force, "force"),
    ];

    pub(crate) const fn of(value: u8) -> Self {
        match value {
            0 => Self::Always,
            1 => Self::WithinSize,
            2 => Self::Advised,
            3 => Self::Never,
            4 => Self::Deny,
            _ => Self::Force,
        }
    }

    /// Whether a first touch allocates a huge page. `asked` says whether the area has `MADV_HUGEPAGE` (Linux 7.2
    /// `mm/shmem.c`, `shmem_get_orders_within_size` and `shmem_huge_global_enabled`). If this mode is for all sizes,
    /// `Force` applies to 2 MiB only.
    pub const fn allows(self, asked: bool) -> bool {
        match self {
            Self::Always | Self::WithinSize | Self::Force => true,
            Self::Advised => asked,
            Self::Never | Self::Deny => false,
        }
    }

    /// Returns the effective mode for files of a file system mounted with this mode, where the mode for all sizes is
    /// `all` (Linux 7.2 `mm/shmem.c`, `shmem_huge_global_enabled`).
    const fn of_mount(self, all: Self) -> Self {
        match all {
            Self::Deny | Self::Force => all,
            Self::Always | Self::WithinSize | Self::Advised | Self::Never => self,
        }
    }
}

/// Which shared anonymous memory gets folios of one size
/// (`/sys/kernel/mm/transparent_hugepage/hugepages-*kB/shmem_enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SharedSizeMode {
    /// All.
    Always = 0,
    /// According to the mode for all sizes.
    Inherit = 1,
    /// All, for folios inside the object's size.
    WithinSize = 2,
    /// Memory mapped by areas advised by `MADV_HUGEPAGE`.
    Advised = 3,
    /// None.
    Never = 4,
}

impl SharedSizeMode {
    /// Every mode with its name.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Always, "always"),
        (Self::Inherit, "inherit"),
        (Self::WithinSize, "within_size"),
        (Self::Advised, "advise"),
        (Self::Never, "never"),
    ];

    const fn of(value: u8) -> Self {
        match value {
            0 => Self::Always,
            1 => Self::Inherit,
            2 => Self::WithinSize,
            3 => Self::Advised,
            _ => Self::Never,
        }
    }

    /// Returns the effective mode, where the mode for all sizes is `inherited` (Linux 7.2
    /// `shmem_allowable_huge_orders`).
    const fn with(self, inherited: SharedMode) -> SharedMode {
        match (inherited, self) {
            (SharedMode::Deny, _) => SharedMode::Deny,
            (_, Self::Inherit) => inherited,
            (SharedMode::Force, _) | (_, Self::Never) => SharedMode::Never,
            (_, Self::Always) => SharedMode::Always,
            (_, Self::WithinSize) => SharedMode::WithinSize,
            (_, Self::Advised) => SharedMode::Advised,
        }
    }
}

/// Which setting applies to an object of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedSetting {
    /// The setting for all sizes, for a file that is on no mounted file system.
    File,
    /// The settings for each size, for shared anonymous memory.
    Anonymous,
    /// The setting of the mounted file system, unless the setting for all sizes is `Deny` or `Force`.
    Mount(SharedMode),
}

/// What a process disables for itself (`PR_SET_THP_DISABLE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum HugeRefusal {
    /// Nothing.
    #[default]
    Nothing = 0,
    /// All huge pages.
    Everywhere = 1,
    /// Huge pages outside areas advised by `MADV_HUGEPAGE` (`PR_THP_DISABLE_EXCEPT_ADVISED`).
    ExceptAdvised = 2,
}

impl HugeRefusal {
    pub(crate) const fn of(value: u8) -> Self {
        match value {
            0 => Self::Nothing,
            1 => Self::Everywhere,
            _ => Self::ExceptAdvised,
        }
    }
}

/// What requests a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeAsker {
    /// A fault or khugepaged: the settings apply.
    Setting,
    /// An explicit collapse (`MADV_COLLAPSE`), or a fault in shared memory: the mode for anonymous memory does not
    /// apply.
    Program,
}

/// Whether an area with these flags may have huge pages (`__thp_vma_allowable_orders`, `vma_thp_disabled`).
pub fn may_be_huge(
    flags: AreaFlags,
    mode: HugeMode,
    refusal: HugeRefusal,
    asker: HugeAsker,
) -> bool {
    let asked = flags.contains(AreaFlags::HUGE);
    let forced = match asker {
        HugeAsker::Program => true,
        HugeAsker::Setting => false,
    };
    if flags.contains(AreaFlags::NOT_HUGE) {
        return false;
    }
    let refused = match refusal {
        HugeRefusal::Nothing => false,
        HugeRefusal::Everywhere => true,
        HugeRefusal::ExceptAdvised => !asked && !forced,
    };
    let enabled = match mode {
        HugeMode::Always => true,
        HugeMode::Advised => asked,
        HugeMode::Never => false,
    };
    !refused && (enabled || forced)
}

/// Droppable memory has 4 KiB pages only. Memory registered with a userfaultfd may have huge pages. A fault there maps
/// a 4 KiB page only if it reports a missing page to the userfaultfd, or if it finds a marker.
const SMALL_ONLY: AreaFlags = AreaFlags::DROPPABLE;

/// Returns the 2 MiB range that contains `page`.
pub const fn around(page: Page) -> PageRange {
    let start = page.number() & !(HUGE_PAGES - 1);
    PageRange::new(Page::new(start), Page::new(start + HUGE_PAGES))
}

/// Settings other than the mode, which is a policy. Settings without effect here are stored and reported, for programs
/// that save and restore all of them.
#[derive(Debug)]
pub struct HugeSettings {
    /// The `defrag` mode: an index of the words in the sysfs file. It has no effect: no allocation compacts memory.
    pub defrag: AtomicU8,
    /// Which shared memory gets huge pages: a [`SharedMode`].
    shared: AtomicU8,
    /// Whether any shared memory gets folios that 4 KiB entries map. Faults read the other settings only if this is
    /// set.
    shared_of_pages: AtomicBool,
    /// Whether a file system was mounted whose files may have huge pages.
    mounts: AtomicBool,
    /// The settings of each size.
    pub sizes: SizeSettings,
    /// Whether a read of untouched memory maps the huge zero page.
    pub zero_page: AtomicBool,
    /// The settings of khugepaged.
    pub scan: ScanSettings,
    /// The huge zero page, once it is allocated.
    zero: AtomicU32,
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
    /// The maximum number of the 512 pages that may be missing (`max_ptes_none`).
    pub most_missing: AtomicU32,
    /// The maximum number of the 512 pages that may be in swap; they are swapped in for the collapse (`max_ptes_swap`).
    pub most_swapped: AtomicU32,
    /// The maximum number of the 512 pages that may have other users (`max_ptes_shared`).
    pub most_shared: AtomicU32,
    /// Huge pages that khugepaged has collapsed (`pages_collapsed`).
    pub collapsed: AtomicU64,
    /// Complete scans of all memory (`full_scans`).
    pub rounds: AtomicU64,
    /// Pages that were read from a swap device for a collapse, by khugepaged or `MADV_COLLAPSE`.
    pub read_back: AtomicU64,
}

/// The value of `zero` while no huge zero page is allocated.
const NONE: u32 = u32::MAX;

impl Default for HugeSettings {
    fn default() -> Self {
        Self {
            // madvise.
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
    /// If `order` is none of [`SMALLEST_ORDER`] to [`FOLIO_ORDER`].
    pub fn set_shared_size(&self, order: u8, mode: SharedSizeMode) {
        self.sizes.set_shared_mode(order, mode);
        self.note_shared();
    }

    /// Notes that a file system with huge-page mode `mode` was mounted.
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

    /// Whether any shared memory gets folios that 4 KiB entries map.
    #[inline(always)]
    pub(crate) fn any_shared_of_pages(&self) -> bool {
        self.shared_of_pages.load(Ordering::Relaxed)
    }

    /// Returns the orders below 2 MiB that a first touch of shared memory with this setting may allocate. `asked` says
    /// whether the area has `MADV_HUGEPAGE` (Linux 7.2 `mm/shmem.c`, `shmem_allowable_huge_orders`). A file that gets
    /// huge pages gets all orders, unless huge pages are forced.
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

    /// Whether a first touch of shared memory with this setting allocates a huge page. `asked` says whether the area
    /// has `MADV_HUGEPAGE`.
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

    /// Returns the number of huge zero pages: 1 once one was needed, 0 before.
    pub fn zero_pages(&self) -> u64 {
        u64::from(self.zero.load(Ordering::Relaxed) != NONE)
    }
}

impl<M: Machine> Memory<M> {
    /// Returns which areas get huge pages: the mode for 2 MiB, combined with the mode for all sizes.
    pub fn huge_mode(&self) -> HugeMode {
        self.huge()
            .sizes
            .mode(FOLIO_ORDER)
            .with(self.policy().huge())
    }

    /// Whether khugepaged has anything to scan; `asked` says whether any area has `MADV_HUGEPAGE` (Linux 7.2
    /// `mm/khugepaged.c`, `hugepage_pmd_enabled`).
    pub fn may_collapse(&self, asked: bool) -> bool {
        let anonymous = match self.huge_mode() {
            HugeMode::Always => true,
            HugeMode::Advised => asked,
            HugeMode::Never => false,
        };
        let settings = [SharedSetting::File, SharedSetting::Anonymous];
        let shared = |setting| self.huge().allows_shared(setting, asked);
        anonymous || settings.into_iter().any(shared)
    }

    /// Returns the huge zero page, which is allocated when it is first needed and then kept; `None` if there is no
    /// memory.
    pub(crate) fn huge_zero_frame(&self) -> Option<Frame> {
        let zero = &self.huge().zero;
        let made = zero.load(Ordering::Acquire);
        if made != NONE {
            return Some(Frame::new(made));
        }
        let frames = self.frames();
        let folio = frames.allocate_zeroed(FOLIO_ORDER, FrameKind::Zero).ok()?;
        self.count(Row::FramesZeroed, HUGE_PAGES);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match zero.compare_exchange(NONE, folio.frame().number(), order.0, order.1) {
            Ok(_) => Some(folio.into_raw()),
            Err(seen) => Some(Frame::new(seen)),
        }
    }

    /// Frees the huge zero page when the memory manager is dropped.
    pub(crate) fn drop_huge_zero_frame(&self) {
        let made = self.huge().zero.swap(NONE, Ordering::AcqRel);
        if made != NONE {
            drop(self.frames().adopt_whole(Frame::new(made)));
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Whether `area`, of this address space, is eligible for a huge page (`THPeligible` in smaps).
    pub fn may_be_huge(&self, area: &Area<M>) -> bool {
        let first = area.start().number().next_multiple_of(HUGE_PAGES);
        let range = around(Page::new(first));
        self.core.area_may_be_huge(area, range, HugeAsker::Setting)
    }
}

impl<M: Machine> Core<M> {
    /// Returns the orders below 2 MiB of folios that may be allocated in `area`, which is anonymous. Memory registered
    /// with a userfaultfd gets single pages.
    pub(crate) fn folio_orders(&self, area: &Area<M>) -> FolioOrders {
        let flags = area.flags();
        if flags.intersects(SMALL_ONLY | AreaFlags::UFFD) {
            return FolioOrders::NONE;
        }
        let refusal = self.huge_refusal();
        let allows = |mode| may_be_huge(flags, mode, refusal, HugeAsker::Setting);
        let memory = &self.memory;
        memory.huge().sizes.orders(memory.policy().huge(), allows)
    }

    /// Whether `area` may have the huge page `range`.
    pub(crate) fn area_may_be_huge(
        &self,
        area: &Area<M>,
        range: PageRange,
        asker: HugeAsker,
    ) -> bool {
        let inside = area.start() <= range.start && range.end <= area.end();
        if !inside || area.flags().intersects(SMALL_ONLY) {
            return false;
        }
        let Some(object) = area.object() else {
            let mode = self.memory.huge_mode();
            return may_be_huge(area.flags(), mode, self.huge_refusal(), asker);
        };
        // The object checks the setting of shared memory.
        let asked = area.flags().contains(AreaFlags::HUGE);
        let enabled = match asker {
            HugeAsker::Setting => object.may_be_huge(&self.memory, asked),
            HugeAsker::Program => true,
        };
        enabled
            && area.offset_of(range.start) % HUGE_PAGES == 0
            && !area.flags().contains(AreaFlags::HUGETLB)
            && may_be_huge(area.flags(), HugeMode::Always, self.huge_refusal(), asker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_a_size_comes_before_that_of_all() {
        use HugeMode::*;
        for inherited in [Always, Advised, Never] {
            assert_eq!(SizeMode::Always.with(inherited), Always);
            assert_eq!(SizeMode::Inherit.with(inherited), inherited);
            assert_eq!(SizeMode::Advised.with(inherited), Advised);
            assert_eq!(SizeMode::Never.with(inherited), Never);
        }
        for (mode, _) in SizeMode::ALL {
            assert_eq!(SizeMode::of(mode as u8), mode);
        }
    }

    #[test]
    fn who_has_huge_pages_of_shared_memory() {
        use {SharedMode::*, SharedSizeMode as Size};
        #[rustfmt::skip]
        let rows = [
            // The mode for all sizes, the mode for this size, the effective mode of shared anonymous memory.
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
            // The mode for all sizes, whether the area is advised; the orders of files, and of shared anonymous memory
            // with the modes: 16 KiB always, 32 KiB advised, 64 KiB within the size, 128 KiB inherited.
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
            // The mode for all sizes, the mode of the mount; whether files get 2 MiB, and whether they get smaller
            // orders, each in areas that are not advised and in areas that are.
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
    fn who_may_have_huge_pages() {
        use {HugeAsker::*, HugeMode::*, HugeRefusal::*};
        let (none, asked, not) = (AreaFlags::empty(), AreaFlags::HUGE, AreaFlags::NOT_HUGE);
        #[rustfmt::skip]
        let rows = [
            (none,  Always,  Nothing,       Setting, true),
            (none,  Advised, Nothing,       Setting, false),
            (asked, Advised, Nothing,       Setting, true),
            (asked, Never,   Nothing,       Setting, false),
            (not,   Always,  Nothing,       Setting, false),
            (none,  Never,   Nothing,       Program, true),
            (not,   Always,  Nothing,       Program, false),
            (asked, Always,  Everywhere,    Setting, false),
            (asked, Always,  Everywhere,    Program, false),
            (none,  Always,  ExceptAdvised, Setting, false),
            (asked, Advised, ExceptAdvised, Setting, true),
            (none,  Always,  ExceptAdvised, Program, true),
        ];
        for (flags, mode, refusal, asker, expected) in rows {
            assert_eq!(
                may_be_huge(flags, mode, refusal, asker),
                expected,
                "{flags:?} {mode:?} {refusal:?} {asker:?}"
            );
        }
    }
}
