//! Controls of NUMA balancing: `/proc/sys/kernel/numa_balancing`, and `/sys/kernel/debug/sched/numa_balancing` (Linux
//! 7.2 `kernel/sched/debug.c`). All threads share one scan period, which does not adapt to individual threads.

use crate::procfs::{
    node::{
        FixedDirectory, ProcNode, SystemControl,
        text::{number, read_switch, setting},
    },
    system::split::SPLIT,
};
use core::fmt::Write;
use memwright_linux_abi::errno::Errno;

use ProcNode::{Fixed, SystemControl as Control};

/// `/proc/sys/kernel/numa_balancing`.
pub static BALANCING: SystemControl = SystemControl {
    read: |view, text| read_switch(text, view.parts.balancing().is_on()),
    store: |view, bytes| {
        let on = match setting(bytes)? {
            0 => false,
            1 => true,
            // 2 is memory tiering, which is not supported.
            _ => return Err(Errno::EINVAL),
        };
        view.parts.balancing().turn(on);
        Ok(())
    },
};

/// Inode numbers of `/sys/kernel/debug`, which is debugfs on Linux.
pub const DEBUG_NUMBERS: core::ops::Range<u64> = 0x1400..0x1500;

/// `/sys/kernel/debug`.
pub static DEBUG: FixedDirectory = FixedDirectory {
    first: DEBUG_NUMBERS.start,
    entries: &[
        ("sched", 0o555, Fixed(&SCHEDULING)),
        ("split_huge_pages", 0o200, Control(&SPLIT)),
    ],
};

static SCHEDULING: FixedDirectory = FixedDirectory {
    first: 0x1410,
    entries: &[("numa_balancing", 0o555, Fixed(&PACE))],
};

static PACE: FixedDirectory = FixedDirectory {
    first: 0x1420,
    entries: &[
        ("scan_period_min_ms", 0o644, Control(&PERIOD)),
        ("scan_size_mb", 0o644, Control(&SIZE)),
    ],
};

static PERIOD: SystemControl = SystemControl {
    read: |view, text| writeln!(text, "{}", view.parts.balancing().period()),
    store: |view, bytes| {
        let period = positive(bytes)?;
        view.parts.balancing().set_period(period);
        Ok(())
    },
};

static SIZE: SystemControl = SystemControl {
    read: |view, text| writeln!(text, "{}", view.parts.balancing().size()),
    store: |view, bytes| {
        view.parts.balancing().set_size(positive(bytes)?);
        Ok(())
    },
};

fn positive(bytes: &[u8]) -> Result<u32, Errno> {
    let value = number(bytes).and_then(|value| u32::try_from(value).ok());
    value.filter(|value| *value > 0).ok_or(Errno::EINVAL)
}
