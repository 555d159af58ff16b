//! `/sys/kernel/mm/ksm` (Documentation/admin-guide/mm/ksm.rst of Linux 7.2). The advisor and smart scan are not
//! implemented, so their files do not exist.

use crate::{
    errno::Errno,
    merge_scan::Run,
    procfs::node::{
        FixedDirectory, ProcNode, SystemControl,
        text::{Text, attribute, read_switch, switch, truth},
    },
    view::View,
};
use core::{
    fmt::{self, Write},
    sync::atomic::{AtomicU32, Ordering},
};
use memwright::{MergeCounts, MergeSettings, Row};

use ProcNode::{SystemControl as Control, SystemText};

/// The directory of the settings and counters.
pub static SETTINGS: FixedDirectory = FixedDirectory {
    first: 0x1300,
    entries: &[
        ("full_scans", 0o444, SystemText(rounds)),
        ("general_profit", 0o444, SystemText(profit)),
        ("ksm_zero_pages", 0o444, SystemText(zero_pages)),
        ("max_page_sharing", 0o644, Control(&MOST_SHARING)),
        ("merge_across_nodes", 0o644, Control(&ACROSS_NODES)),
        ("pages_scanned", 0o444, SystemText(scanned)),
        ("pages_shared", 0o444, SystemText(shared)),
        ("pages_sharing", 0o444, SystemText(sharing)),
        ("pages_to_scan", 0o644, Control(&PAGES)),
        ("pages_unshared", 0o444, SystemText(unshared)),
        ("pages_volatile", 0o444, SystemText(volatile)),
        ("run", 0o644, Control(&RUN)),
        ("sleep_millisecs", 0o644, Control(&SLEEP)),
        ("stable_node_chains", 0o444, SystemText(chains)),
        ("stable_node_chains_prune_millisecs", 0o644, Control(&PRUNE)),
        ("stable_node_dups", 0o444, SystemText(duplicates)),
        ("use_zero_pages", 0o644, Control(&ZERO_PAGES)),
    ],
};

fn settings<'a>(view: &'a View<'_>) -> &'a MergeSettings {
    view.kernel.memory.merging().settings()
}

fn counts(view: &View<'_>) -> MergeCounts {
    let memory = &view.kernel.memory;
    memory.merging().counts(memory)
}

fn rounds(view: &View<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(view).rounds)
}

/// Writes the number of pages that ksmd has examined.
fn scanned(view: &View<'_>, text: &mut Text) -> fmt::Result {
    let account = view.kernel.memory.account();
    writeln!(text, "{}", account.count(Row::MergeLooked))
}

fn shared(view: &View<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(view).shared)
}

fn sharing(view: &View<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(view).sharing)
}

fn unshared(view: &View<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(view).unshared)
}

fn volatile(view: &View<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(view).volatile)
}

fn chains(view: &View<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(view).chains)
}

fn duplicates(view: &View<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(view).duplicates)
}

fn zero_pages(view: &View<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", view.kernel.memory.merged_zero_pages())
}

/// Writes the number of bytes that merging saves, minus the size of the index of pages.
fn profit(view: &View<'_>, text: &mut Text) -> fmt::Result {
    let counts = counts(view);
    let pages = counts.sharing + view.kernel.memory.merged_zero_pages();
    let bytes = (pages * 4096) as i64 - counts.index_bytes as i64;
    writeln!(text, "{bytes}")
}

static RUN: SystemControl = SystemControl {
    read: |view, text| writeln!(text, "{}", view.kernel.merge_scan.state()),
    store: |view, bytes| {
        let run = attribute(bytes).ok().and_then(Run::of);
        let run = run.ok_or(Errno::EINVAL)?;
        view.kernel.merge_scan.set(run)
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
        view.kernel.merge_scan.wake();
        Ok(())
    },
};

static PRUNE: SystemControl = SystemControl {
    read: |view, text| read_number(text, &settings(view).prune),
    store: |view, bytes| store_number(&settings(view).prune, bytes),
};

/// Cannot be changed while pages are merged.
static MOST_SHARING: SystemControl = SystemControl {
    read: |view, text| read_number(text, &settings(view).most_sharing),
    store: |view, bytes| {
        let setting = &settings(view).most_sharing;
        let wanted = i32::try_from(attribute(bytes)?).map_err(|_| Errno::ERANGE)? as u32;
        if wanted < 2 {
            return Err(Errno::EINVAL);
        }
        if wanted != setting.load(Ordering::Relaxed) && counts(view).shared > 0 {
            return Err(Errno::EBUSY);
        }
        setting.store(wanted, Ordering::Relaxed);
        Ok(())
    },
};

/// Cannot be changed while pages are merged.
static ACROSS_NODES: SystemControl = SystemControl {
    read: |view, text| read_switch(text, settings(view).across_nodes.load(Ordering::Relaxed)),
    store: |view, bytes| {
        let setting = &settings(view).across_nodes;
        let on = switch(bytes)?;
        if on != setting.load(Ordering::Relaxed) && counts(view).shared > 0 {
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
