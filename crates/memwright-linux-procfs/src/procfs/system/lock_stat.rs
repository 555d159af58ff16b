//! `/proc/lock_stat`.

use crate::procfs::{
    node::view::shows,
    node::{SystemControl, stub::stubs, text::Text},
};
use core::fmt::{self, Write};
use memwright_linux_abi::errno::Errno;
use memwright_table::sync::{
    RANKS,
    stat::{self, Line},
};

stubs! {
    LINES_WAITED: "/proc/lock_stat" "line: waited" Number(0), "A CPU cannot count how often it waits for a cache line.";
    MISSED_REST: "/proc/lock_stat" "line missed: bounced, shared and waited" Number(0), "The row has a single count.";
}

/// `/proc/lock_stat`: lock statistics. The file has the same purpose as in Linux 7.2 (`kernel/locking/lockdep_proc.c`),
/// but a different format.
pub static LOCK_STATISTICS: SystemControl = SystemControl {
    read: shows!(read),
    store: |_, bytes| store(bytes),
};

/// Writes a row for each lock rank, and then a row for each kind of cache line. A row contains four numbers. `taken`
/// counts the acquisitions of the locks, or the writes of the lines. `bounced` counts those of them that followed a
/// write of the same lock word or line by another CPU. `shared` counts the lock words or lines that more than one CPU
/// has written. `waited` counts the acquisitions that had to wait.
fn read(text: &mut Text) -> fmt::Result {
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

/// Handles a write: as on Linux, 0 clears the statistics.
fn store(bytes: &[u8]) -> Result<(), Errno> {
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
