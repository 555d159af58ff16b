//! `/sys/kernel/mm/transparent_hugepage/hugepages-*kB`: the settings and statistics of each folio size
//! (Documentation/admin-guide/mm/transhuge.rst of Linux 7.2).

use crate::procfs::{
    node::view::shows,
    node::{FixedDirectory, ProcNode, SystemControl, text::Text},
    system::huge::{choice, chosen},
};
use core::{
    fmt::{self, Write},
    sync::atomic::{AtomicU64, Ordering},
};
use memwright::{SharedSizeMode, SizeCounts, SizeMode};
use memwright_linux_abi::Memory;

use ProcNode::{Fixed, SystemControl as Control, SystemText};

/// Defines the directory for folios of order `ORDER`, and its files, as associated constants.
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
            (
                "anon_fault_alloc",
                0o444,
                SystemText(shows!(Self::filled, memory)),
            ),
            (
                "anon_fault_fallback",
                0o444,
                SystemText(shows!(Self::refused, memory)),
            ),
            (
                "shmem_alloc",
                0o444,
                SystemText(shows!(Self::shared_filled, memory)),
            ),
            (
                "shmem_fallback",
                0o444,
                SystemText(shows!(Self::shared_refused, memory)),
            ),
            ("swpin", 0o444, SystemText(shows!(Self::swapped_in, memory))),
            (
                "swpin_fallback",
                0o444,
                SystemText(shows!(Self::swapped_in_smaller, memory)),
            ),
        ],
    };

    const ENABLED: SystemControl = SystemControl {
        read: |view, text| {
            let words = SizeMode::ALL.map(|(_, name)| name);
            let mode = view.parts.memory().huge().sizes.mode(ORDER);
            choice(text, &words, mode as usize)
        },
        store: |view, bytes| {
            let words = SizeMode::ALL.map(|(_, name)| name);
            let (mode, _) = SizeMode::ALL[chosen(&words, bytes)?];
            view.parts.memory().huge().sizes.set_mode(ORDER, mode);
            view.parts.huge_scan().wake();
            Ok(())
        },
    };

    const SHARED: SystemControl = SystemControl {
        read: |view, text| {
            let words = SharedSizeMode::ALL.map(|(_, name)| name);
            let mode = view.parts.memory().huge().sizes.shared_mode(ORDER);
            choice(text, &words, mode as usize)
        },
        store: |view, bytes| {
            let words = SharedSizeMode::ALL.map(|(_, name)| name);
            let (mode, _) = SharedSizeMode::ALL[chosen(&words, bytes)?];
            view.parts.memory().huge().set_shared_size(ORDER, mode);
            view.parts.huge_scan().wake();
            Ok(())
        },
    };

    fn filled(memory: &Memory, text: &mut Text) -> fmt::Result {
        Self::count(memory, text, |counts| &counts.filled)
    }

    fn refused(memory: &Memory, text: &mut Text) -> fmt::Result {
        Self::count(memory, text, |counts| &counts.refused)
    }

    fn swapped_in(memory: &Memory, text: &mut Text) -> fmt::Result {
        Self::count(memory, text, |counts| &counts.swapped_in)
    }

    fn swapped_in_smaller(memory: &Memory, text: &mut Text) -> fmt::Result {
        Self::count(memory, text, |counts| &counts.swapped_in_smaller)
    }

    fn shared_filled(memory: &Memory, text: &mut Text) -> fmt::Result {
        Self::count(memory, text, |counts| &counts.shared_filled)
    }

    fn shared_refused(memory: &Memory, text: &mut Text) -> fmt::Result {
        Self::count(memory, text, |counts| &counts.shared_refused)
    }

    fn count(
        memory: &Memory,
        text: &mut Text,
        of: impl Fn(&SizeCounts) -> &AtomicU64,
    ) -> fmt::Result {
        let counts = memory.huge().sizes.counts(ORDER);
        writeln!(text, "{}", of(counts).load(Ordering::Relaxed))
    }
}
