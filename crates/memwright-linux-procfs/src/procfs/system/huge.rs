//! `/sys/kernel/mm/transparent_hugepage` (Documentation/admin-guide/mm/transhuge.rst of Linux 7.2).

use crate::procfs::{
    node::view::shows,
    node::{
        FixedDirectory, ProcNode, SystemControl,
        stub::stubs,
        text::{Text, attribute, read_switch, switch},
    },
    system::{hugetlb, merge, sizes::Size},
};
use core::{
    fmt::{self, Write},
    sync::atomic::{AtomicU32, Ordering},
};
use memwright::{HugeMode, SharedMode, object::HUGE_BYTES};
use memwright_linux_abi::{Memory, errno::Errno};

use ProcNode::{Fixed, SystemControl as Control, SystemText};

stubs! {
    DEFRAG_STUB: "/sys/kernel/mm/transparent_hugepage/defrag" "" Unused,
        "No allocation of a huge page compacts or reclaims memory. The account counts each write as a call without effect.";
    SCAN_DEFRAG_STUB: "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag" "" Unused,
        "No allocation of a huge page compacts or reclaims memory.";
    SIZE_STUB: "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size" "" Number(HUGE_BYTES),
        "A PMD entry of x86-64 maps this size.";
}

/// `/sys/kernel/mm`.
pub static MEMORY: FixedDirectory = FixedDirectory {
    first: 0xd00,
    entries: &[
        ("hugepages", 0o555, Fixed(&hugetlb::SIZES)),
        ("ksm", 0o555, Fixed(&merge::SETTINGS)),
        ("transparent_hugepage", 0o555, Fixed(&SETTINGS)),
    ],
};

static SETTINGS: FixedDirectory = FixedDirectory {
    first: 0xe00,
    entries: &[
        ("defrag", 0o644, Control(&DEFRAG)),
        ("enabled", 0o644, Control(&ENABLED)),
        ("hpage_pmd_size", 0o444, SystemText(shows!(size))),
        ("hugepages-1024kB", 0o555, Fixed(&Size::<8>::DIRECTORY)),
        ("hugepages-128kB", 0o555, Fixed(&Size::<5>::DIRECTORY)),
        ("hugepages-16kB", 0o555, Fixed(&Size::<2>::DIRECTORY)),
        ("hugepages-2048kB", 0o555, Fixed(&Size::<9>::DIRECTORY)),
        ("hugepages-256kB", 0o555, Fixed(&Size::<6>::DIRECTORY)),
        ("hugepages-32kB", 0o555, Fixed(&Size::<3>::DIRECTORY)),
        ("hugepages-512kB", 0o555, Fixed(&Size::<7>::DIRECTORY)),
        ("hugepages-64kB", 0o555, Fixed(&Size::<4>::DIRECTORY)),
        ("khugepaged", 0o555, Fixed(&SCAN)),
        ("shmem_enabled", 0o644, Control(&SHARED)),
        ("use_zero_page", 0o644, Control(&ZERO_PAGE)),
    ],
};

static SCAN: FixedDirectory = FixedDirectory {
    first: 0xf00,
    entries: &[
        ("alloc_sleep_millisecs", 0o644, Control(&ALLOCATION_SLEEP)),
        ("defrag", 0o644, Control(&SCAN_DEFRAG)),
        ("full_scans", 0o444, SystemText(shows!(rounds, memory))),
        ("max_ptes_none", 0o644, Control(&MOST_MISSING)),
        ("max_ptes_shared", 0o644, Control(&MOST_SHARED)),
        ("max_ptes_swap", 0o644, Control(&MOST_SWAPPED)),
        (
            "pages_collapsed",
            0o444,
            SystemText(shows!(collapsed, memory)),
        ),
        ("pages_to_scan", 0o644, Control(&PAGES)),
        ("scan_sleep_millisecs", 0o644, Control(&SLEEP)),
    ],
};

/// The words of which `defrag` accepts one, in the order in which they are written.
const DEFRAG_WORDS: [&str; 5] = ["always", "defer", "defer+madvise", "madvise", "never"];

/// Writes all words of a setting, with the active word in brackets.
pub(super) fn choice(text: &mut Text, words: &[&str], chosen: usize) -> fmt::Result {
    for (index, word) in words.iter().enumerate() {
        let space = if index == 0 { "" } else { " " };
        if index == chosen {
            write!(text, "{space}[{word}]")?;
        } else {
            write!(text, "{space}{word}")?;
        }
    }
    text.write_char('\n')
}

/// Returns the index in `words` of the word in `bytes`, which a program has written.
pub(super) fn chosen(words: &[&str], bytes: &[u8]) -> Result<usize, Errno> {
    let word = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let position = words.iter().position(|one| one.as_bytes() == word);
    position.ok_or(Errno::EINVAL)
}

static ENABLED: SystemControl = SystemControl {
    read: |view, text| {
        let words = HugeMode::ALL.map(|(_, name)| name);
        choice(text, &words, view.parts.memory().policy().huge() as usize)
    },
    store: |view, bytes| {
        let words = HugeMode::ALL.map(|(_, name)| name);
        let (mode, _) = HugeMode::ALL[chosen(&words, bytes)?];
        view.parts.memory().policy().set_huge(mode);
        view.parts.huge_scan().wake();
        Ok(())
    },
};

/// `defrag`. See [`DEFRAG_STUB`].
static DEFRAG: SystemControl = SystemControl {
    read: |view, text| {
        let now = view.parts.memory().huge().defrag.load(Ordering::Relaxed);
        choice(text, &DEFRAG_WORDS, now.into())
    },
    store: |view, bytes| {
        let wanted = chosen(&DEFRAG_WORDS, bytes)?;
        view.parts.calls().count_stub("transparent_hugepage/defrag");
        view.parts
            .memory()
            .huge()
            .defrag
            .store(wanted as u8, Ordering::Relaxed);
        Ok(())
    },
};

static SHARED: SystemControl = SystemControl {
    read: |view, text| {
        let words = SharedMode::ALL.map(|(_, name)| name);
        choice(
            text,
            &words,
            view.parts.memory().huge().shared_mode() as usize,
        )
    },
    store: |view, bytes| {
        let words = SharedMode::ALL.map(|(_, name)| name);
        let (mode, _) = SharedMode::ALL[chosen(&words, bytes)?];
        view.parts.memory().huge().set_shared_mode(mode);
        view.parts.huge_scan().wake();
        Ok(())
    },
};

static ZERO_PAGE: SystemControl = SystemControl {
    read: |view, text| {
        read_switch(
            text,
            view.parts.memory().huge().zero_page.load(Ordering::Relaxed),
        )
    },
    store: |view, bytes| {
        view.parts
            .memory()
            .huge()
            .zero_page
            .store(switch(bytes)?, Ordering::Relaxed);
        Ok(())
    },
};

/// `khugepaged/defrag`. See [`SCAN_DEFRAG_STUB`].
static SCAN_DEFRAG: SystemControl = SystemControl {
    read: |view, text| {
        read_switch(
            text,
            view.parts
                .memory()
                .huge()
                .scan
                .defrag
                .load(Ordering::Relaxed),
        )
    },
    store: |view, bytes| {
        view.parts
            .memory()
            .huge()
            .scan
            .defrag
            .store(switch(bytes)?, Ordering::Relaxed);
        Ok(())
    },
};

static SLEEP: SystemControl = SystemControl {
    read: |view, text| read_number(text, &view.parts.memory().huge().scan.sleep),
    store: |view, bytes| {
        store_number(&view.parts.memory().huge().scan.sleep, bytes, 0..=u32::MAX)?;
        view.parts.huge_scan().wake();
        Ok(())
    },
};

static ALLOCATION_SLEEP: SystemControl = SystemControl {
    read: |view, text| read_number(text, &view.parts.memory().huge().scan.allocation_sleep),
    store: |view, bytes| {
        let setting = &view.parts.memory().huge().scan.allocation_sleep;
        store_number(setting, bytes, 0..=u32::MAX)?;
        view.parts.huge_scan().wake();
        Ok(())
    },
};

static PAGES: SystemControl = SystemControl {
    read: |view, text| read_number(text, &view.parts.memory().huge().scan.pages),
    store: |view, bytes| store_number(&view.parts.memory().huge().scan.pages, bytes, 1..=u32::MAX),
};

static MOST_MISSING: SystemControl = SystemControl {
    read: |view, text| read_number(text, &view.parts.memory().huge().scan.most_missing),
    store: |view, bytes| {
        store_number(
            &view.parts.memory().huge().scan.most_missing,
            bytes,
            0..=511,
        )
    },
};

static MOST_SWAPPED: SystemControl = SystemControl {
    read: |view, text| read_number(text, &view.parts.memory().huge().scan.most_swapped),
    store: |view, bytes| {
        store_number(
            &view.parts.memory().huge().scan.most_swapped,
            bytes,
            0..=511,
        )
    },
};

static MOST_SHARED: SystemControl = SystemControl {
    read: |view, text| read_number(text, &view.parts.memory().huge().scan.most_shared),
    store: |view, bytes| store_number(&view.parts.memory().huge().scan.most_shared, bytes, 0..=511),
};

fn read_number(text: &mut Text, setting: &AtomicU32) -> fmt::Result {
    writeln!(text, "{}", setting.load(Ordering::Relaxed))
}

fn store_number(
    setting: &AtomicU32,
    bytes: &[u8],
    allowed: core::ops::RangeInclusive<u32>,
) -> Result<(), Errno> {
    let value = attribute(bytes)
        .ok()
        .and_then(|value| u32::try_from(value).ok());
    let value = value.filter(|value| allowed.contains(value));
    setting.store(value.ok_or(Errno::EINVAL)?, Ordering::Relaxed);
    Ok(())
}

/// Writes `hpage_pmd_size`, the size of a huge page in bytes.
fn size(text: &mut Text) -> fmt::Result {
    writeln!(text, "{SIZE_STUB}")
}

fn collapsed(memory: &Memory, text: &mut Text) -> fmt::Result {
    let count = memory.huge().scan.collapsed.load(Ordering::Relaxed);
    writeln!(text, "{count}")
}

fn rounds(memory: &Memory, text: &mut Text) -> fmt::Result {
    let count = memory.huge().scan.rounds.load(Ordering::Relaxed);
    writeln!(text, "{count}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn what_holds_stands_in_brackets() {
        let mut text = Text::new();
        choice(&mut text, &DEFRAG_WORDS, 3).unwrap();
        assert_eq!(
            String::from_utf8(text.bytes().to_vec()).unwrap(),
            "always defer defer+madvise [madvise] never\n"
        );
        assert_eq!(chosen(&DEFRAG_WORDS, b"defer\n"), Ok(1));
        assert_eq!(chosen(&DEFRAG_WORDS, b"never"), Ok(4));
        assert_eq!(chosen(&DEFRAG_WORDS, b"[never]"), Err(Errno::EINVAL));
    }
}
