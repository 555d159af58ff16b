//! The C programs of `programs/`, linked in four ways; one boot runs all of one way.

use crate::guest::{Ending, Guest};
use crate::prepare::program;
use libtest_mimic::{Failed, Trial};
use std::sync::{Arc, OnceLock};

const VARIANTS: &[&str] = &["glibc-static", "musl-static", "static-pie", "dynamic"];

/// The programs, and the arguments of those that take some.
const PROGRAMS: &[&str] = &[
    "hello",
    "fork_protect",
    "cow",
    "map",
    "advise",
    "limits",
    "faults",
    "signals",
    "wait",
    "pipes",
    "files",
    "proc",
    "fpu",
    "badptr --every",
    "many_processes",
];

/// Boots that several tests look at: whoever comes first makes it.
type Boot = Arc<OnceLock<Result<Ending, Failed>>>;

/// One test for each program and way to link it. Tests that stand next to one another wait for different boots.
pub fn trials() -> Vec<Trial> {
    let boots: Vec<Boot> = VARIANTS.iter().map(|_| Boot::default()).collect();
    let mut trials = Vec::new();
    for words in PROGRAMS {
        let name = words.split(' ').next().unwrap_or(words);
        for (variant, boot) in VARIANTS.iter().zip(&boots) {
            let boot = boot.clone();
            trials.push(Trial::test(
                format!("programs::{variant}::{name}"),
                move || passed(boot.get_or_init(|| run_all(variant)), name),
            ));
        }
    }
    trials.push(Trial::test("programs::same_trace_twice", same_trace));
    trials
}

/// One boot of everything, twice. Too many events for a trace: some programs fork thousands of times.
fn run_all(variant: &str) -> Result<Ending, Failed> {
    boot(variant, PROGRAMS).untraced().run()
}

/// Every event of programs that share, protect, copy and move memory comes in the same order each time.
fn same_trace() -> Result<(), Failed> {
    let programs = ["fork_protect", "faults", "advise", "files", "fpu"];
    boot("musl-static", &programs).run()?.expect_code(0)
}

/// A boot that runs these programs one after another.
fn boot(variant: &str, programs: &[&str]) -> Guest {
    let lines: Vec<String> = programs
        .iter()
        .map(|words| format!("/programs/{words}"))
        .collect();
    let arguments: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut guest = Guest::new(program(variant, "suite"), &arguments);
    for words in programs {
        let name = words.split(' ').next().unwrap_or(words);
        guest = guest.file(&program(variant, name), &format!("/programs/{name}"));
    }
    guest
}

/// Whether the boot's output says that this program passed.
fn passed(boot: &Result<Ending, Failed>, name: &str) -> Result<(), Failed> {
    let ending = boot.as_ref().map_err(Clone::clone)?;
    let text = ending.text();
    let begin = format!("# begin {name}\n");
    let Some((_, rest)) = text.split_once(&begin) else {
        return Err(format!("{name} was not started: {}", ending.report()).into());
    };
    let own = rest.split("# begin ").next().unwrap_or(rest);
    if own.lines().any(|line| line == format!("ok {name}")) {
        return Ok(());
    }
    let last = own.lines().any(|line| line.starts_with("not ok "));
    let more = if last { String::new() } else { ending.report() };
    Err(format!("{own}{more}").into())
}
