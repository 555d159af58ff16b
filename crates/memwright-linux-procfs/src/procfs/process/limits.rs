//! `/proc/PID/limits` and `/proc/PID/oom_score_adj`.

use crate::procfs::node::{Subject, Text};
use core::{
    fmt::{self, Write},
    sync::atomic::Ordering,
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::identity::INFINITY;

/// The name and unit of each limit, by the number of the limit (`fs/proc/base.c` of Linux 7.2).
const NAMES: [(&str, &str); 16] = [
    ("Max cpu time", "seconds"),
    ("Max file size", "bytes"),
    ("Max data size", "bytes"),
    ("Max stack size", "bytes"),
    ("Max core file size", "bytes"),
    ("Max resident set", "bytes"),
    ("Max processes", "processes"),
    ("Max open files", "files"),
    ("Max locked memory", "bytes"),
    ("Max address space", "bytes"),
    ("Max file locks", "locks"),
    ("Max pending signals", "signals"),
    ("Max msgqueue size", "bytes"),
    ("Max nice priority", ""),
    ("Max realtime priority", ""),
    ("Max realtime timeout", "us"),
];

fn write_limit(text: &mut Text, limit: u64) -> fmt::Result {
    if limit == INFINITY {
        write!(text, " {:<20}", "unlimited")
    } else {
        write!(text, " {limit:<20}")
    }
}

/// Writes `/proc/PID/limits`.
///
/// # Errors
/// The errors of writing to `text`.
pub fn limits(subject: &Subject, text: &mut Text) -> fmt::Result {
    let limits = subject.process.identity.limits.lock().clone();
    let (name, soft, hard) = ("Limit", "Soft Limit", "Hard Limit");
    writeln!(text, "{name:<25} {soft:<20} {hard:<20} Units     ")?;
    for ((name, unit), limit) in NAMES.iter().zip(limits.iter()) {
        write!(text, "{name:<25}")?;
        write_limit(text, limit.current)?;
        write_limit(text, limit.maximum)?;
        if unit.is_empty() {
            text.write_char('\n')?;
        } else {
            writeln!(text, " {unit:<10}")?;
        }
    }
    Ok(())
}

/// The value of `Process::kill_score` for an adjustment of 0 in the file.
const SCORE_BASE: i64 = 1000;

/// Writes `/proc/PID/oom_score_adj`.
///
/// # Errors
/// The errors of writing to `text`.
pub fn kill_score(subject: &Subject, text: &mut Text) -> fmt::Result {
    let score = i64::from(subject.process.kill_score.load(Ordering::Relaxed));
    writeln!(text, "{}", score - SCORE_BASE)
}

/// Handles a write to `/proc/PID/oom_score_adj`.
///
/// # Errors
/// `EINVAL` unless the text is a number from -1000 to 1000.
pub fn set_kill_score(subject: &Subject, bytes: &[u8]) -> Result<(), Errno> {
    let text = core::str::from_utf8(bytes).map_err(|_| Errno::EINVAL)?;
    let score: i64 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
    if !(-SCORE_BASE..=SCORE_BASE).contains(&score) {
        return Err(Errno::EINVAL);
    }
    let stored = (score + SCORE_BASE) as u32;
    subject.process.kill_score.store(stored, Ordering::Relaxed);
    Ok(())
}
