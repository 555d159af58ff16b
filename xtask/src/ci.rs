//! Everything that must hold before a change lands, with the seconds of each stage.

use crate::suite::Totals;
use crate::{conformance, fuzz, install, miri, mutants, recorded, room, shell, suite, unsafe_code};
use anyhow::{Result, bail};
use std::process::Command;
use std::time::{Duration, Instant};

/// The whole may take this long.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// The oldest compiler that the library crates promise to build with.
const OLDEST: &str = "1.85";

/// The crates that make that promise.
const LIBRARIES: &[&str] = &[
    "memwright-table",
    "memwright",
    "memwright-sim",
    "memwright-linux",
];

/// How a stage ended.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Runs every stage, also after one failed, and prints what each took.
///
/// # Errors
/// When a stage fails, or the whole takes over 60 minutes.
pub fn run() -> Result<()> {
    let start = Instant::now();
    let deadline = start + LIMIT;
    let mut totals = None;
    let mut report: Vec<(&str, Duration, Outcome)> = Vec::new();
    let mut stage = |name: &'static str, work: &mut dyn FnMut() -> Result<Outcome>| {
        eprintln!("\n### {name}");
        let began = Instant::now();
        let outcome = work().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        if let Outcome::Failed(why) = &outcome {
            eprintln!("### {name} failed: {why}");
        }
        eprintln!("### {name}: {:.1} s", began.elapsed().as_secs_f64());
        report.push((name, began.elapsed(), outcome));
    };
    stage("install", &mut || {
        room::check()?;
        install::install()?;
        install::install_packages(&[install::CHROMIUM])?;
        Ok(Outcome::Passed)
    });
    stage("format", &mut || {
        cargo(&["fmt", "--all", "--", "--check"], &[], deadline)
    });
    stage("lints, host", &mut || {
        cargo(
            &["clippy", "--all-targets", "--", "-D", "warnings"],
            &[],
            deadline,
        )
    });
    stage("lints, kernel", &mut || {
        let target = install::KERNEL_TARGET;
        cargo(
            &[
                "clippy",
                "-p",
                "memwright-kernel",
                "--target",
                target,
                "--",
                "-D",
                "warnings",
            ],
            &[],
            deadline,
        )
    });
    stage("documentation", &mut || {
        cargo(
            &["doc", "--no-deps"],
            &[("RUSTDOCFLAGS", "-D warnings")],
            deadline,
        )
    });
    stage("tests, host and QEMU", &mut || {
        let counted = suite::run_tests()?;
        totals = Some(counted);
        Ok(if counted.failed == 0 {
            Outcome::Passed
        } else {
            Outcome::Failed(format!("{} failed", counted.failed))
        })
    });
    stage("unsafe code", &mut || {
        unsafe_code::run().map(|()| Outcome::Passed)
    });
    stage("undefined behaviour", &mut || {
        Ok(match miri::run()? {
            miri::Outcome::Passed => Outcome::Passed,
            miri::Outcome::Skipped(why) => Outcome::Skipped(why.to_owned()),
        })
    });
    stage("targets of the fuzzer", &mut || {
        let folder = shell::target_folder().join("fuzz");
        Ok(match fuzz::coverage::run_kept(&folder)? {
            fuzz::coverage::Outcome::Clean => Outcome::Passed,
            fuzz::coverage::Outcome::Skipped(why) => Outcome::Skipped(why.to_owned()),
        })
    });
    stage("random programs", &mut || {
        Ok(match fuzz::slice::run()? {
            fuzz::slice::Outcome::Same => Outcome::Passed,
            fuzz::slice::Outcome::Skipped(why) => Outcome::Skipped(why),
        })
    });
    stage("planted mistakes", &mut || {
        mutants::run(&[]).map(|()| Outcome::Passed)
    });
    stage("selftests, a slice", &mut || selftests(&[]));
    stage("selftests, by faults", &mut || selftests(&["track=fault"]));
    stage("another machine's figures", &mut || {
        Ok(match recorded::run(false)? {
            recorded::Outcome::Same => Outcome::Passed,
            recorded::Outcome::Elsewhere => Outcome::Skipped("recorded with others".to_owned()),
            recorded::Outcome::Different => Outcome::Failed("other figures".to_owned()),
        })
    });
    stage("oldest compiler", &mut || oldest_compiler(deadline));
    summary(&report, start.elapsed(), totals)
}

fn summary(
    report: &[(&str, Duration, Outcome)],
    all: Duration,
    totals: Option<Totals>,
) -> Result<()> {
    println!("\n{:<26} {:>8}", "stage", "seconds");
    let mut failed = 0;
    for (name, took, outcome) in report {
        let words = match outcome {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Skipped(why) => format!("skipped: {why}"),
            Outcome::Failed(why) => {
                failed += 1;
                format!("FAILED: {why}")
            }
        };
        println!("{name:<26} {:>8.1}  {words}", took.as_secs_f64());
    }
    println!("{:<26} {:>8.1}", "all", all.as_secs_f64());
    if let Some(totals) = totals {
        println!("{}", totals.line());
    }
    if all > LIMIT {
        bail!(
            "took {:.0} minutes, more than {}",
            all.as_secs_f64() / 60.0,
            LIMIT.as_secs() / 60
        );
    }
    if failed > 0 {
        bail!("{failed} stages failed");
    }
    Ok(())
}

fn cargo(arguments: &[&str], variables: &[(&str, &str)], deadline: Instant) -> Result<Outcome> {
    let mut command = shell::cargo(arguments);
    command.envs(variables.iter().copied());
    shell::run_until(&mut command, deadline)?;
    Ok(Outcome::Passed)
}

/// Part of Linux's own mm selftests; without their sources none.
fn selftests(policies: &[&str]) -> Result<Outcome> {
    Ok(match conformance::run_slice(policies)? {
        conformance::Outcome::NoSource(why) => Outcome::Skipped(format!("no source: {why}")),
        conformance::Outcome::Ran(totals) => {
            println!("{}", totals.line());
            totals.complaint().map_or(Outcome::Passed, Outcome::Failed)
        }
    })
}

fn oldest_compiler(deadline: Instant) -> Result<Outcome> {
    let mut installation = Command::new("rustup");
    installation.args([
        "toolchain",
        "install",
        OLDEST,
        "--profile",
        "minimal",
        "--no-self-update",
    ]);
    if shell::run_until(&mut installation, deadline).is_err() {
        return Ok(Outcome::Skipped(format!(
            "Rust {OLDEST} cannot be installed here"
        )));
    }
    let mut check = Command::new("rustup");
    check
        .args(["run", OLDEST, "cargo", "check", "--locked"])
        .current_dir(shell::root());
    for library in LIBRARIES {
        check.args(["-p", library]);
    }
    // A folder of its own, so that it does not throw out what the other compiler built.
    check
        .env("CARGO_TARGET_DIR", shell::target_folder().join("oldest"))
        .env_remove("CARGO")
        .env_remove("RUSTC");
    shell::run_until(&mut check, deadline)?;
    Ok(Outcome::Passed)
}
