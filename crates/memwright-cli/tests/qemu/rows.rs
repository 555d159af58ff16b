//! Compares rows of the account with numbers that are known in advance. The personality and the kernel count these
//! rows.

use crate::guest::{Ending, Guest};
use crate::prepare::{later_qemu, program};
use libtest_mimic::{Completion, Failed, Trial};

/// The rows, each with the line of a test that checks the row, and the source file that must contain that line.
const HELD: &[(&str, &str, &str)] = &[
    (
        "instructions_user",
        "row(&document, \"instructions_user\")",
        include_str!("../exact.rs"),
    ),
    (
        "instructions_kernel",
        "row(&document, \"instructions_kernel\")",
        include_str!("../exact.rs"),
    ),
    (
        "instructions_interrupts",
        "assert!(few > 0 && many == 20 * few",
        include_str!("../exact.rs"),
    ),
    (
        "instructions_stretch",
        "stretch::longest()",
        include_str!("../../../memwright-kernel/src/selftest/time.rs"),
    ),
    (
        "locks_contended",
        "Waits::Contended",
        include_str!("../../../memwright-sim/tests/lock_statistics.rs"),
    ),
    (
        "locks_halted",
        "Waits::Halted",
        include_str!("../../../memwright-sim/tests/lock_statistics.rs"),
    ),
    (
        "flush_waits_halted",
        "Waits::FlushHalted",
        include_str!("../../../memwright-kernel/src/selftest/cpus.rs"),
    ),
    ("processes", "(\"processes\", ", include_str!("rows.rs")),
    (
        "processes_killed",
        "(\"processes_killed\", ",
        include_str!("rows.rs"),
    ),
    ("oom_kills", "(\"oom_kills\", ", include_str!("rows.rs")),
    (
        "audit_findings",
        "audit_findings 2",
        include_str!("../../../memwright-linux-sim/src/lib.rs"),
    ),
];

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("rows::processes", processes),
        Trial::ignorable_test("rows::each_is_held_to_a_number", each_is_held),
    ]
}

/// Checks the rows about processes. Three processes exit, two outlive the program, and one is killed because memory is
/// exhausted.
fn processes() -> Result<(), Failed> {
    let ending = Guest::new(program("musl-static", "left_behind"), &["3", "2", "1"])
        .option("--memory", "64M")
        .untraced()
        .run()?;
    ending.expect_code(0)?;
    let expected = [
        ("processes", 1 + 3 + 2 + 1),
        ("processes_killed", 2),
        ("oom_kills", 1),
        ("forks", 3 + 2 + 1),
        ("audit_findings", 0),
    ];
    let account = ending.account()?;
    for (name, count) in expected {
        let found = account["account"][name].as_u64();
        if found != Some(count) {
            return Err(format!("{name}: {found:?} instead of {count}").into());
        }
    }
    Ok(())
}

/// Checks that each row of the account of a run on several CPUs is in [`HELD`], or belongs to the memory manager, whose
/// own tests check its rows. Also checks that each line in [`HELD`] exists.
fn each_is_held() -> Result<Completion, Failed> {
    if !later_qemu() {
        return Ok(Completion::ignored_with("no later QEMU"));
    }
    let ending = Guest::new(program("musl-static", "hello"), &[])
        .cpus(2)
        .run()?;
    ending.expect_code(0)?;
    not_held(&ending).map(|()| Completion::Completed)
}

fn not_held(ending: &Ending) -> Result<(), Failed> {
    let account = ending.account()?;
    let rows = account["account"].as_object().ok_or("no rows")?;
    let own: Vec<&str> = rows
        .keys()
        .map(String::as_str)
        .filter(|name| memwright::ROWS.iter().all(|row| row.name != *name))
        .collect();
    for name in &own {
        if !HELD.iter().any(|(held, ..)| held == name) {
            return Err(format!("no test holds {name} to a number").into());
        }
    }
    for (name, line, source) in HELD {
        if !own.contains(name) {
            return Err(format!("{name} is no row").into());
        }
        if !source.contains(line) {
            return Err(format!("the test of {name} does not look at it: no {line}").into());
        }
    }
    Ok(())
}
