//! `/proc/PID/ksm_stat` and `/proc/PID/ksm_merging_pages` (`fs/proc/base.c` of Linux 7.2).

use crate::procfs::node::{Subject, Text};
use core::fmt::{self, Write};

/// Writes `/proc/PID/ksm_merging_pages`, which is empty for a process without an address space.
///
/// # Errors
/// The errors of `text`.
pub fn merging(subject: &Subject, text: &mut Text) -> fmt::Result {
    match subject.process.space() {
        Some(space) => writeln!(text, "{}", space.ksm().merged_pages().merged),
        None => Ok(()),
    }
}

/// Writes `/proc/PID/ksm_stat`. The row `ksm_rmap_items` contains the number of pages that ksmd tracks.
///
/// # Errors
/// The errors of `text`.
pub fn statistics(subject: &Subject, text: &mut Text) -> fmt::Result {
    let Some(space) = subject.process.space() else {
        return Ok(());
    };
    let pages = space.ksm().merged_pages();
    let saved = ((pages.merged + pages.zero) * 4096) as i64;
    let word = |on| if on { "yes" } else { "no" };
    writeln!(text, "ksm_rmap_items {}", pages.lone)?;
    writeln!(text, "ksm_zero_pages {}", pages.zero)?;
    writeln!(text, "ksm_merging_pages {}", pages.merged)?;
    writeln!(
        text,
        "ksm_process_profit {}",
        saved - pages.lone_bytes as i64
    )?;
    writeln!(text, "ksm_merge_any: {}", word(space.ksm().merges_all()))?;
    writeln!(text, "ksm_mergeable: {}", word(space.ksm().is_mergeable()))
}
