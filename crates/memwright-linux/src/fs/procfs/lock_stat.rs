//! `/proc/lock_stat`.

use super::{node::SystemControl, stub::stubs, text::Text};
use crate::{context::Context, errno::Errno};
use core::fmt::{self, Write};
use memwright_table::sync::{
    RANKS,
    stat::{self, Line},
};

stubs! {
    LINES_WAITED: "/proc/lock_stat" "line: waited" Number(0), "A CPU cannot count how often it waits for a cache line.";
    MISSED_REST: "/proc/lock_stat" "line missed: bounced, shared and waited" Number(0), "The row has a single count.";
}

/// `/proc/lock_stat`: lock statistics. It has the purpose of its namesake in Linux 7.2
/// (`kernel/locking/lockdep_proc.c`), but a format of its own.
pub static LOCK_STATISTICS: SystemControl = SystemControl { read, store };

/// Writes one row for each lock rank, then one for each kind of cache line: how many locks were taken or lines written,
/// how many of these another CPU wrote last, how many words or lines more than one CPU wrote, and how many acquisitions
/// had to wait.
fn read(_: &Context<'_>, text: &mut Text) -> fmt::Result {
    if !stat::is_on() {
        return writeln!(text, "off: the policy locks=count takes lock statistics");
    }
    writeln!(text, "lock {:<16} taken bounced shared waited", "rank")?;
    for rank in RANKS {
        let counts = stat::locks(rank);
        let name = rank.name();
        let stat::Counts {
            taken,
            bounced,
            shared,
            waited,
        } = counts;
        writeln!(text, "lock {name:<16} {taken} {bounced} {shared} {waited}")?;
    }
    for line in Line::ALL {
        let counts = stat::lines(line);
        let name = line.name();
        let stat::Counts {
            taken,
            bounced,
            shared,
            waited: _,
        } = counts;
        writeln!(
            text,
            "line {name:<16} {taken} {bounced} {shared} {LINES_WAITED}"
        )?;
    }
    let (name, missed) = ("missed", stat::missed());
    writeln!(
        text,
        "line {name:<16} {missed} {MISSED_REST} {MISSED_REST} {MISSED_REST}"
    )
}

/// A written 0 clears the statistics, as on Linux.
fn store(_: &Context<'_>, bytes: &[u8]) -> Result<(), Errno> {
    match bytes.trim_ascii() {
        b"0" => {
            if stat::is_on() {
                stat::clear();
            }
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}
