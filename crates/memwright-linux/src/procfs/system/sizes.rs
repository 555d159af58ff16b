//! `/sys/kernel/mm/transparent_hugepage/hugepages-*kB`: the settings and statistics of each folio size
//! (Documentation/admin-guide/mm/transhuge.rst of Linux 7.2).

use crate::{
    procfs::{
        node::{FixedDirectory, ProcNode, SystemControl, text::Text},
        system::huge::{choice, chosen, settings},
    },
    view::View,
};
use core::{
    fmt::{self, Write},
    sync::atomic::{AtomicU64, Ordering},
};
use memwright::{SharedSizeMode, SizeCounts, SizeMode};

use ProcNode::{Fixed, SystemControl as Control, SystemText};

/// The directories for the folio size of order `ORDER`.
pub struct Size<const ORDER: u8>;

impl<const ORDER: u8> Size<ORDER> {
    /// The first inode number of the entries for this size. Each size has a range of 32 inode numbers.
    const FIRST: u64 = 0x1500 + ORDER as u64 * 0x20;

    /// `hugepages-*kB`.
    pub const DIRECTORY: FixedDirectory = FixedDirectory {
        first: Self::FIRST,
        entries: &[
            ("enabled", 0o644, Control(&Self::ENABLED)),
            ("shmem_enabled", 0o644, Control(&Self::SHARED)),
            ("stats", 0o555, Fixed(&Self::STATS)),
        ],
    };

    const STATS: FixedDirectory = FixedDirectory {
        first: Self::FIRST + 0x10,
        entries: &[
            ("anon_fault_alloc", 0o444, SystemText(Self::filled)),
            ("anon_fault_fallback", 0o444, SystemText(Self::refused)),
            ("shmem_alloc", 0o444, SystemText(Self::shared_filled)),
            ("shmem_fallback", 0o444, SystemText(Self::shared_refused)),
            ("swpin", 0o444, SystemText(Self::swapped_in)),
            (
                "swpin_fallback",
                0o444,
                SystemText(Self::swapped_in_smaller),
            ),
        ],
    };

    const ENABLED: SystemControl = SystemControl {
        read: |view, text| {
            let words = SizeMode::ALL.map(|(_, name)| name);
            let mode = settings(view).sizes.mode(ORDER);
            choice(text, &words, mode as usize)
        },
        store: |view, bytes| {
            let words = SizeMode::ALL.map(|(_, name)| name);
            let (mode, _) = SizeMode::ALL[chosen(&words, bytes)?];
            settings(view).sizes.set_mode(ORDER, mode);
            view.kernel.huge_scan.wake();
            Ok(())
        },
    };

    const SHARED: SystemControl = SystemControl {
        read: |view, text| {
            let words = SharedSizeMode::ALL.map(|(_, name)| name);
            let mode = settings(view).sizes.shared_mode(ORDER);
            choice(text, &words, mode as usize)
        },
        store: |view, bytes| {
            let words = SharedSizeMode::ALL.map(|(_, name)| name);
            let (mode, _) = SharedSizeMode::ALL[chosen(&words, bytes)?];
            settings(view).set_shared_size(ORDER, mode);
            view.kernel.huge_scan.wake();
            Ok(())
        },
    };

    fn filled(view: &View<'_>, text: &mut Text) -> fmt::Result {
        Self::count(view, text, |counts| &counts.filled)
    }

    fn refused(view: &View<'_>, text: &mut Text) -> fmt::Result {
        Self::count(view, text, |counts| &counts.refused)
    }

    fn swapped_in(view: &View<'_>, text: &mut Text) -> fmt::Result {
        Self::count(view, text, |counts| &counts.swapped_in)
    }

    fn swapped_in_smaller(view: &View<'_>, text: &mut Text) -> fmt::Result {
        Self::count(view, text, |counts| &counts.swapped_in_smaller)
    }

    fn shared_filled(view: &View<'_>, text: &mut Text) -> fmt::Result {
        Self::count(view, text, |counts| &counts.shared_filled)
    }

    fn shared_refused(view: &View<'_>, text: &mut Text) -> fmt::Result {
        Self::count(view, text, |counts| &counts.shared_refused)
    }

    fn count(
        view: &View<'_>,
        text: &mut Text,
        of: impl Fn(&SizeCounts) -> &AtomicU64,
    ) -> fmt::Result {
        let counts = settings(view).sizes.counts(ORDER);
        writeln!(text, "{}", of(counts).load(Ordering::Relaxed))
    }
}
