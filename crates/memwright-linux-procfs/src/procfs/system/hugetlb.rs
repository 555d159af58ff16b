//! The hugetlb pool in `/proc` and `/sys` (Documentation/admin-guide/mm/hugetlbpage.rst of Linux 7.2).

use crate::procfs::{
    node::view::shows,
    node::{
        FixedDirectory, ProcNode, SystemControl,
        text::{Text, attribute, kibibyte_row, setting},
    },
};
use core::fmt::{self, Write};
use memwright::object::HUGE_BYTES;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_table::PoolCounts;

use ProcNode::{Fixed, SystemControl as Control, SystemText};

/// `/sys/kernel/mm/hugepages`. There is one size of huge pages.
pub static SIZES: FixedDirectory = FixedDirectory {
    first: 0x1100,
    entries: &[("hugepages-2048kB", 0o555, Fixed(&SIZE))],
};

static SIZE: FixedDirectory = FixedDirectory {
    first: 0x1200,
    entries: &[
        ("free_hugepages", 0o444, SystemText(shows!(free, memory))),
        ("nr_hugepages", 0o644, Control(&PAGES)),
        ("nr_overcommit_hugepages", 0o644, Control(&MOST_SURPLUS)),
        (
            "resv_hugepages",
            0o444,
            SystemText(shows!(reserved, memory)),
        ),
        (
            "surplus_hugepages",
            0o444,
            SystemText(shows!(surplus, memory)),
        ),
    ],
};

/// `nr_hugepages`: the size of the pool.
static PAGES: SystemControl = SystemControl {
    read: shows!(total, memory),
    store: |view, bytes| resize(view.parts.memory(), attribute(bytes)?),
};

/// `nr_overcommit_hugepages`: the maximum number of surplus pages by which the pool grows on demand.
static MOST_SURPLUS: SystemControl = SystemControl {
    read: shows!(most_surplus, memory),
    store: |view, bytes| set_most_surplus(view.parts.memory(), attribute(bytes)?),
};

/// `/proc/sys/vm/nr_hugepages`.
pub static PAGES_SETTING: SystemControl = SystemControl {
    read: shows!(total, memory),
    store: |view, bytes| resize(view.parts.memory(), setting(bytes)?),
};

/// `/proc/sys/vm/nr_overcommit_hugepages`.
pub static MOST_SURPLUS_SETTING: SystemControl = SystemControl {
    read: shows!(most_surplus, memory),
    store: |view, bytes| set_most_surplus(view.parts.memory(), setting(bytes)?),
};

fn total(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).total)
}

fn resize(memory: &Memory, pages: u64) -> Result<(), Errno> {
    memory.frames().resize_pool(pages);
    Ok(())
}

fn most_surplus(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).most_surplus)
}

fn set_most_surplus(memory: &Memory, pages: u64) -> Result<(), Errno> {
    memory.frames().set_pool_surplus(pages);
    Ok(())
}

fn counts(memory: &Memory) -> PoolCounts {
    memory.frames().pool()
}

fn free(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).free)
}

fn reserved(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).reserved)
}

fn surplus(memory: &Memory, text: &mut Text) -> fmt::Result {
    writeln!(text, "{}", counts(memory).surplus)
}

/// Writes the rows of `/proc/meminfo` about the pool (`hugetlb_report_meminfo`).
///
/// # Errors
/// The errors of `text`.
pub fn memory_rows(memory: &Memory, text: &mut Text) -> fmt::Result {
    let pool = memory.frames().pool();
    for (name, pages) in [
        ("HugePages_Total:", pool.total),
        ("HugePages_Free:", pool.free),
        ("HugePages_Rsvd:", pool.reserved),
        ("HugePages_Surp:", pool.surplus),
    ] {
        writeln!(text, "{name:<16}{pages:8}")?;
    }
    kibibyte_row(text, "Hugepagesize", HUGE_BYTES / 1024)?;
    kibibyte_row(text, "Hugetlb", pool.total * (HUGE_BYTES / 1024))
}
