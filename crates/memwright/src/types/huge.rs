//! The modes of transparent huge pages (Linux 7.2 `include/linux/huge_mm.h`).

use memwright_table::{FOLIO_FRAMES, Page, PageRange};

/// The number of 4 KiB pages in a huge page.
pub const HUGE_PAGES: u64 = FOLIO_FRAMES as u64;

/// The choice of the areas that get huge pages (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HugeMode {
    /// All areas.
    Always = 0,
    /// Areas advised by `MADV_HUGEPAGE`.
    Advised = 1,
    /// No areas.
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

/// The choice of the areas that get folios of one size (`/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SizeMode {
    /// All areas.
    Always = 0,
    /// The areas that the mode for all sizes selects ([`HugeMode`]).
    Inherit = 1,
    /// Areas advised by `MADV_HUGEPAGE`.
    Advised = 2,
    /// No areas.
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

    pub(crate) const fn of(value: u8) -> Self {
        match value {
            0 => Self::Always,
            1 => Self::Inherit,
            2 => Self::Advised,
            _ => Self::Never,
        }
    }

    /// Returns the effective mode. `inherited` is the mode for all sizes.
    pub(crate) const fn with(self, inherited: HugeMode) -> HugeMode {
        match self {
            Self::Always => HugeMode::Always,
            Self::Inherit => inherited,
            Self::Advised => HugeMode::Advised,
            Self::Never => HugeMode::Never,
        }
    }
}

/// The choice of the shared memory that gets huge pages (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SharedMode {
    /// All shared memory.
    Always = 0,
    /// All shared memory, if the huge page is within the size of the object. In Memwright, [`Always`](Self::Always) has
    /// this limit too.
    WithinSize = 1,
    /// Memory mapped by areas advised by `MADV_HUGEPAGE`.
    Advised = 2,
    /// No shared memory, except by `MADV_COLLAPSE`.
    Never = 3,
    /// No shared memory, not even by `MADV_COLLAPSE`.
    Deny = 4,
    /// All shared memory, regardless of other settings.
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

    /// Returns whether a first touch allocates a huge page. `asked` states whether the area has `MADV_HUGEPAGE` (Linux
    /// 7.2 `mm/shmem.c`, `shmem_get_orders_within_size` and `shmem_huge_global_enabled`). If `self` is the mode for all
    /// sizes, `Force` applies to 2 MiB only.
    pub const fn allows(self, asked: bool) -> bool {
        match self {
            Self::Always | Self::WithinSize | Self::Force => true,
            Self::Advised => asked,
            Self::Never | Self::Deny => false,
        }
    }

    /// Returns the effective mode for files of a file system that was mounted with the mode `self`. `all` is the mode
    /// for all sizes (Linux 7.2 `mm/shmem.c`, `shmem_huge_global_enabled`).
    pub(crate) const fn of_mount(self, all: Self) -> Self {
        match all {
            Self::Deny | Self::Force => all,
            Self::Always | Self::WithinSize | Self::Advised | Self::Never => self,
        }
    }
}

/// The choice of the shared anonymous memory that gets folios of one size
/// (`/sys/kernel/mm/transparent_hugepage/hugepages-*kB/shmem_enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SharedSizeMode {
    /// All shared anonymous memory.
    Always = 0,
    /// The memory that the mode for all sizes selects ([`SharedMode`]).
    Inherit = 1,
    /// All shared anonymous memory, if the folio is within the size of the object.
    WithinSize = 2,
    /// Memory mapped by areas advised by `MADV_HUGEPAGE`.
    Advised = 3,
    /// No shared anonymous memory.
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

    pub(crate) const fn of(value: u8) -> Self {
        match value {
            0 => Self::Always,
            1 => Self::Inherit,
            2 => Self::WithinSize,
            3 => Self::Advised,
            _ => Self::Never,
        }
    }

    /// Returns the effective mode. `inherited` is the mode for all sizes (Linux 7.2 `shmem_allowable_huge_orders`).
    pub(crate) const fn with(self, inherited: SharedMode) -> SharedMode {
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

/// The setting that controls the huge pages of an object of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedSetting {
    /// The setting for all sizes: the object is a file that is on no mounted file system.
    File,
    /// The settings for each size: the object is shared anonymous memory.
    Anonymous,
    /// The setting of a mounted file system, unless the setting for all sizes is `Deny` or `Force`.
    Mount(SharedMode),
}

/// The huge pages that a process disables for itself (`PR_SET_THP_DISABLE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum HugeRefusal {
    /// No huge pages.
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

/// Returns the 2 MiB range that contains `page`.
pub const fn around(page: Page) -> PageRange {
    let start = page.number() & !(HUGE_PAGES - 1);
    PageRange::new(Page::new(start), Page::new(start + HUGE_PAGES))
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
}
