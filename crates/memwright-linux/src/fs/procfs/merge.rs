//! `/sys/kernel/mm/ksm` (Documentation/admin-guide/mm/ksm.rst of Linux 7.2). The advisor and smart scan are not
//! implemented, so their files do not exist.

use super::{
    node::{FixedDirectory, ProcNode, SystemControl},
    text::{Text, attribute, read_switch, switch, truth},
};
use crate::{context::Context, errno::Errno, merge_scan::Run};
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

fn settings<'a>(context: &'a Context<'_>) -> &'a MergeSettings {
    context.kernel.memory.merging().settings()
}

fn counts(context: &Context<'_>) -> MergeCounts {
    let memory = &context.kernel.memory;
    memory.merging().counts(memory)
}

fn rounds(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(context).rounds)
}

/// Writes the number of pages that ksmd has examined.
fn scanned(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    let account = context.kernel.memory.account();
    writeln!(text, "{}", account.count(Row::MergeLooked))
}

fn shared(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(context).shared)
}

fn sharing(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(context).sharing)
}

fn unshared(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(context).unshared)
}

fn volatile(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(context).volatile)
}

fn chains(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(context).chains)
}

fn duplicates(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(context).duplicates)
}

fn zero_pages(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", context.kernel.memory.merged_zero_pages())
}

/// Writes the number of bytes that merging saves, minus the size of the index of pages.
fn profit(context: &Context<'_>, text: &mut Text) -> fmt::Result {
    let counts = counts(context);
    let pages = counts.sharing + context.kernel.memory.merged_zero_pages();
    let bytes = (pages * 4096) as i64 - counts.index_bytes as i64;
    writeln!(text, "{bytes}")
}

static RUN: SystemControl = SystemControl {
    read: |context, text| writeln!(text, "{}", context.kernel.merge_scan.state()),
    store: |context, bytes| {
        let run = attribute(bytes).ok().and_then(Run::of);
        let run = run.ok_or(Errno::EINVAL)?;
        context.kernel.merge_scan.set(run)
    },
};

static PAGES: SystemControl = SystemControl {
    read: |context, text| read_number(text, &settings(context).pages),
    store: |context, bytes| store_number(&settings(context).pages, bytes),
};

static SLEEP: SystemControl = SystemControl {
    read: |context, text| read_number(text, &settings(context).sleep),
    store: |context, bytes| {
        store_number(&settings(context).sleep, bytes)?;
        context.kernel.merge_scan.wake();
        Ok(())
    },
};

static PRUNE: SystemControl = SystemControl {
    read: |context, text| read_number(text, &settings(context).prune),
    store: |context, bytes| store_number(&settings(context).prune, bytes),
};

/// Cannot be changed while pages are merged.
static MOST_SHARING: SystemControl = SystemControl {
    read: |context, text| read_number(text, &settings(context).most_sharing),
    store: |context, bytes| {
        let setting = &settings(context).most_sharing;
        let wanted = i32::try_from(attribute(bytes)?).map_err(|_| Errno::ERANGE)? as u32;
        if wanted < 2 {
            return Err(Errno::EINVAL);
        }
        if wanted != setting.load(Ordering::Relaxed) && counts(context).shared > 0 {
            return Err(Errno::EBUSY);
        }
        setting.store(wanted, Ordering::Relaxed);
        Ok(())
    },
};

/// Cannot be changed while pages are merged.
static ACROSS_NODES: SystemControl = SystemControl {
    read: |context, text| read_switch(text, settings(context).across_nodes.load(Ordering::Relaxed)),
    store: |context, bytes| {
        let setting = &settings(context).across_nodes;
        let on = switch(bytes)?;
        if on != setting.load(Ordering::Relaxed) && counts(context).shared > 0 {
            return Err(Errno::EBUSY);
        }
        setting.store(on, Ordering::Relaxed);
        Ok(())
    },
};

static ZERO_PAGES: SystemControl = SystemControl {
    read: |context, text| read_switch(text, settings(context).zero_pages.load(Ordering::Relaxed)),
    store: |context, bytes| {
        settings(context)
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
