//! Runs Debian's stress-ng, dynamically linked, on four CPUs. stress-ng verifies its own operations.

use crate::guest::{Ending, Guest};
use crate::shared::{Boot, part_of};
use crate::tier::{Tier, tier};
use libtest_mimic::{Failed, Trial};
use std::path::Path;

const PROGRAM: &str = "/usr/bin/stress-ng";

/// A stressor, its options, and its number of operations.
struct Stressor {
    name: &'static str,
    options: &'static str,
    operations: u32,
}

const STRESSORS: &[Stressor] = &[
    Stressor {
        name: "mmap",
        options: "--mmap 2 --mmap-bytes 16M --verify",
        operations: 50,
    },
    Stressor {
        name: "vm",
        options: "--vm 2 --vm-bytes 64M --verify",
        operations: 20,
    },
    Stressor {
        name: "fork",
        options: "--fork 2",
        operations: 200,
    },
    Stressor {
        name: "mprotect",
        options: "--mprotect 1",
        operations: 200,
    },
    Stressor {
        name: "pthread",
        options: "--pthread 2",
        operations: 500,
    },
];

/// The first tier executes the number of operations divided by this number.
const PART: u32 = 5;

pub fn trials() -> Vec<Trial> {
    let names = STRESSORS.iter().map(|stressor| stressor.name).collect();
    Boot::custom("stress", guest(), names, judge)
        .cpus(4)
        .trials()
}

/// Returns the boot that runs all stressors.
fn guest() -> Guest {
    let part = if tier() == Tier::Test { PART } else { 1 };
    let commands: Vec<String> = STRESSORS
        .iter()
        .map(|stressor| {
            let Stressor { name, options, operations } = stressor;
            let operations = operations / part;
            format!(
                "echo '# begin {name}'; {PROGRAM} {options} --{name}-ops {operations} 2>&1; echo \"code $?\""
            )
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
