//! Runs Debian's stress-ng, dynamically linked, on four CPUs. stress-ng verifies its own operations.

use crate::guest::{Ending, Guest};
use crate::shared::{Boot, part_of};
use libtest_mimic::{Failed, Trial};
use std::path::Path;

const PROGRAM: &str = "/usr/bin/stress-ng";

/// The stressors, each with its number of operations.
const LINES: &[(&str, &str)] = &[
    ("mmap", "--mmap 2 --mmap-bytes 16M --mmap-ops 50 --verify"),
    ("vm", "--vm 2 --vm-bytes 64M --vm-ops 20 --verify"),
    ("fork", "--fork 2 --fork-ops 200"),
    ("mprotect", "--mprotect 1 --mprotect-ops 200"),
    ("pthread", "--pthread 2 --pthread-ops 500"),
];

pub fn trials() -> Vec<Trial> {
    let names = LINES.iter().map(|(name, _)| *name).collect();
    Boot::custom("stress", guest(), names, judge)
        .cpus(4)
        .trials()
}

/// Returns the boot that runs all lines.
fn guest() -> Guest {
    let commands: Vec<String> = LINES
        .iter()
        .map(|(name, options)| {
            format!("echo '# begin {name}'; {PROGRAM} {options} 2>&1; echo \"code $?\"")
        })
        .collect();
    Guest::shell(&commands.join("; "))
        .option("--file", Path::new(PROGRAM))
        .option("--memory", "512M")
        .untraced()
}

/// Checks that a stressor succeeded and reported no failure.
fn judge(ending: &Ending, name: &str) -> Result<(), Failed> {
    let own = part_of(ending, name)?;
    let failed = |line: &str| line.contains("fail:") || line.contains("unsuccessful");
    if own.lines().any(failed) || !own.lines().any(|line| line == "code 0") {
        return Err(format!("stress-ng {name}:\n{own}\n{}", ending.report()).into());
    }
    Ok(())
}
