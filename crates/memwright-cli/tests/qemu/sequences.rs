//! Runs long sequences of mostly valid calls on live descriptors, memory and children (`programs/sequences.c`). These
//! are some of the sequences of `cargo xtask fuzz --target sequences`, with a fixed seed.

use crate::guest::{Ending, Guest};
use crate::prepare::{later_qemu, program};
use crate::stretches::bounded_run;
use libtest_mimic::{Completion, Failed, Trial};
use std::path::Path;

/// The approximate number of calls in one run.
const CALLS: u64 = 24_000;
/// The minimum number of successes of each counted system call, per million calls of all kinds.
const LEAST_OF_A_MILLION: u64 = 1000;
/// The maximum by which free memory may shrink from the middle of a run to its end, in KiB. Free memory can shrink
/// because the kernel's lists of free frames and its heap grow.
const KEPT_KIB: i64 = 512;

/// The guests that run the sequences, each with its number of CPUs and its memory.
const MACHINES: &[(&str, u8, &str)] = &[
    ("on_1", 1, "256M"),
    ("on_4", 4, "256M"),
    ("in_64_mib", 1, "64M"),
];

pub fn trials() -> Vec<Trial> {
    let trial = |&(name, cpus, memory): &'static (&str, u8, &str)| {
        Trial::ignorable_test(format!("sequences::{name}"), move || {
            if cpus > 1 && !later_qemu() {
                return Ok(Completion::ignored_with("no later QEMU"));
            }
            let calls = CALLS.to_string();
            let guest = Guest::new(program("musl-static", "sequences"), &[&calls, "1"])
                .option("--memory", memory)
                .option("--swap", "zram:32M")
                .untraced();
            // A run with one CPU does not set the number of CPUs.
            let guest = if cpus > 1 { guest.cpus(cpus) } else { guest };
            judge(&guest.run()?).map(|()| Completion::Completed)
        })
    };
    // Debug assertions multiply the kernel's work, so the longest stretch without a scheduling point is checked on the
    // shipped kernel. QEMU can count the stretch only with one CPU.
    let as_shipped = |&(name, _, memory): &'static (&str, u8, &'static str)| {
        Trial::test(format!("sequences::as_shipped::{name}"), move || {
            let options = ["--memory", memory, "--swap", "zram:32M"];
            let program = program("musl-static", "sequences");
            bounded_run(&options, Path::new(&program), &[&CALLS.to_string(), "1"])
        })
    };
    let alone = MACHINES.iter().filter(|(_, cpus, _)| *cpus == 1);
    let checked = MACHINES.iter().map(trial);
    checked.chain(alone.map(as_shipped)).collect()
}

/// Checks that no worker hung or crashed, that every call succeeded often enough, and that all memory was freed.
/// [`Guest::run`] has already checked the audit.
fn judge(ending: &Ending) -> Result<(), Failed> {
    ending.expect_code(0)?;
    let text = ending.text();
    let words = |line: &str| {
        line.split([' ', ','])
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = text.lines().map(words).collect();
    let least = CALLS * LEAST_OF_A_MILLION / 1_000_000;
    let mut counted = 0;
    for row in rows.iter().filter(|row| row[0] == "call") {
        if row.last().is_some_and(|word| word == "missing") {
            continue;
        }
        counted += 1;
        if row[5].parse::<u64>()? < least {
            return Err(format!("fewer than {least} successes: {}\n{text}", row.join(" ")).into());
        }
    }
    let free: Vec<i64> = rows
        .iter()
        .filter(|row| row.iter().any(|word| word == "free:"))
        .flat_map(|row| row.iter().filter_map(|word| word.parse().ok()))
        .collect();
    // The numbers of calls and workers, and the free KiB after the first half and at the end.
    let [_, _, before, after] = free[..] else {
        return Err(format!("no line of totals:\n{}", ending.report()).into());
    };
    if counted == 0 || before - after > KEPT_KIB {
        return Err(format!("{} KiB are not free again:\n{text}", before - after).into());
    }
    Ok(())
}
