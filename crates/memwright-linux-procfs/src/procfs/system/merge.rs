//! `/sys/kernel/mm/ksm` (Documentation/admin-guide/mm/ksm.rst of Linux 7.2). The advisor and smart scan are not
//! implemented, so their files do not exist.

use crate::procfs::{
    node::view::{View, shows},
    node::{
        FixedDirectory, ProcNode, SystemControl,
        text::{Text, attribute, read_switch, switch, truth},
    },
};
use core::{
    fmt::{self, Write},
    sync::atomic::{AtomicU32, Ordering},
};
use memwright::{MergeCounts, MergeSettings, Row};
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_memory::merge_scan::Run;

use ProcNode::{SystemControl as Control, SystemText};

/// The directory of the settings and counters.
pub static SETTINGS: FixedDirectory = FixedDirectory {
    first: 0x1300,
    entries: &[
        ("full_scans", 0o444, SystemText(shows!(rounds, memory))),
        ("general_profit", 0o444, SystemText(shows!(profit, memory))),
        (
            "ksm_zero_pages",
            0o444,
            SystemText(shows!(zero_pages, memory)),
        ),
        ("max_page_sharing", 0o644, Control(&MOST_SHARING)),
        ("merge_across_nodes", 0o644, Control(&ACROSS_NODES)),
        ("pages_scanned", 0o444, SystemText(shows!(scanned, memory))),
        ("pages_shared", 0o444, SystemText(shows!(shared, memory))),
        ("pages_sharing", 0o444, SystemText(shows!(sharing, memory))),
        ("pages_to_scan", 0o644, Control(&PAGES)),
        (
            "pages_unshared",
            0o444,
            SystemText(shows!(unshared, memory)),
        ),
        (
            "pages_volatile",
            0o444,
            SystemText(shows!(volatile, memory)),
        ),
        ("run", 0o644, Control(&RUN)),
        ("sleep_millisecs", 0o644, Control(&SLEEP)),
        (
            "stable_node_chains",
            0o444,
            SystemText(shows!(chains, memory)),
        ),
        ("stable_node_chains_prune_millisecs", 0o644, Control(&PRUNE)),
        (
            "stable_node_dups",
            0o444,
            SystemText(shows!(duplicates, memory)),
        ),
        ("use_zero_pages", 0o644, Control(&ZERO_PAGES)),
    ],
};

fn settings<'a>(view: &'a View<'_>) -> &'a MergeSettings {
    view.parts.memory().merging().settings()
}

fn counts(memory: &Memory) -> MergeCounts {
    memory.merging().counts(memory)
}

fn rounds(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).rounds)
}

/// Writes the number of pages that ksmd has examined.
fn scanned(memory: &Memory, text: &mut Text) -> fmt::Result {
    let account = memory.account();
    writeln!(text, "{}", account.count(Row::MergeLooked))
}

fn shared(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).shared)
}

fn sharing(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).sharing)
}

fn unshared(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).unshared)
}

fn volatile(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).volatile)
}

fn chains(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).chains)
}

fn duplicates(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).duplicates)
}

fn zero_pages(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", memory.merged_zero_pages())
}

/// Writes the number of bytes that merging saves, minus the size of ksmd's index of the tracked pages.
fn profit(memory: &Memory, text: &mut Text) -> fmt::Result {
    let counts = counts(memory);
    let pages = counts.sharing + memory.merged_zero_pages();
    let bytes = (pages * 4096) as i64 - counts.index_bytes as i64;
    writeln!(text, "{bytes}")
}

static RUN: SystemControl = SystemControl {
    read: |view, text| writeln!(text, "{}", view.parts.merge_scan().state()),
    store: |view, bytes| {
        let run = attribute(bytes).ok().and_then(Run::of);
        let run = run.ok_or(Errno::EINVAL)?;
        view.parts.merge_scan().set(run)
    },
};

static PAGES: SystemControl = SystemControl {
    read: |view, text| read_number(text, &settings(view).pages),
    store: |view, bytes| store_number(&settings(view).pages, bytes),
};

static SLEEP: SystemControl = SystemControl {
    read: |view, text| read_number(text, &settings(view).sleep),
    store: |view, bytes| {
        store_number(&settings(view).sleep, bytes)?;
        view.parts.merge_scan().wake();
        Ok(())
    },
};

static PRUNE: SystemControl = SystemControl {
    read: |view, text| read_number(text, &settings(view).prune),
    store: |view, bytes| store_number(&settings(view).prune, bytes),
};

/// `max_page_sharing`. It cannot be changed while pages are merged.
static MOST_SHARING: SystemControl = SystemControl {
    read: |view, text| read_number(text, &settings(view).most_sharing),
    store: |view, bytes| {
        let setting = &settings(view).most_sharing;
        let wanted = i32::try_from(attribute(bytes)?).map_err(|_| Errno::ERANGE)? as u32;
        if wanted < 2 {
            return Err(Errno::EINVAL);
        }
        if wanted != setting.load(Ordering::Relaxed) && counts(view.parts.memory()).shared > 0 {
            return Err(Errno::EBUSY);
        }
        setting.store(wanted, Ordering::Relaxed);
        Ok(())
    },
};

/// `merge_across_nodes`. It cannot be changed while pages are merged.
static ACROSS_NODES: SystemControl = SystemControl {
    read: |view, text| read_switch(text, settings(view).across_nodes.load(Ordering::Relaxed)),
    store: |view, bytes| {
        let setting = &settings(view).across_nodes;
        let on = switch(bytes)?;
        if on != setting.load(Ordering::Relaxed) && counts(view.parts.memory()).shared > 0 {
            return Err(Errno::EBUSY);
        }
        setting.store(on, Ordering::Relaxed);
        Ok(())
    },
};

static ZERO_PAGES: SystemControl = SystemControl {
    read: |view, text| read_switch(text, settings(view).zero_pages.load(Ordering::Relaxed)),
    store: |view, bytes| {
        settings(view)
            .zero_pages
            .store(truth(bytes)?, Ordering::Relaxed);
        Ok(())
    },
};

fn read_number(text: &mut Text, setting: &AtomicU32) -> fmt::Result {
    writeln!(text, "{}", setting.load(Ordering::Relaxed))
}

fn store_number(setting: &AtomicU32, bytes: &[u8]) -> Result<(), Errno> {
    let value = attribute(bytes)
        .ok()
        .and_then(|value| u32::try_from(value).ok());
    setting.store(value.ok_or(Errno::EINVAL)?, Ordering::Relaxed);
    Ok(())
}
