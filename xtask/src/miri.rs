//! `cargo xtask miri`: runs unit tests of `memwright-table`, which contains `unsafe` code, and of `memwright` under an
//! interpreter that detects undefined behaviour.
//!
//! It takes minutes for what a processor does in seconds. Of `memwright-table` it runs the tests of locks, handles,
//! copies and tags; entries are arithmetic without `unsafe`. Of `memwright` it runs all tests except those that are
//! marked with a reason. The aliasing rules are checked where memory is small: with thousands of frames that alone
//! takes hours.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::shell;

/// The time limit for everything, on any machine. A test that the interpreter cannot finish in it is marked with a
/// reason, or does less under Miri.
const LIMIT: Duration = Duration::from_secs(12 * 60);

/// Unit tests of a crate.
struct Run {
    package: &'static str,
    /// Prefixes of their names; empty for all tests.
    tests: &'static [&'static str],
    flags: &'static str,
}

/// `memory_base` is an address from outside: its provenance is permissive.
const RUNS: [Run; 3] = [
    Run {
        package: "memwright-table",
        tests: &["sync::", "tags::", "tests::handle"],
        flags: "-Zmiri-permissive-provenance",
    },
    Run {
        package: "memwright-table",
        tests: &["tests::copy"],
        flags: "-Zmiri-permissive-provenance -Zmiri-disable-stacked-borrows",
    },
    Run {
        package: "memwright",
        tests: &[],
        flags: "-Zmiri-permissive-provenance",
    },
];

/// How the run under the interpreter ended.
pub enum Outcome {
    Passed,
    /// It could not run, for this reason.
    Skipped(&'static str),
}

/// Runs the tests, unless there is no nightly compiler with the interpreter.
///
/// # Errors
/// Undefined behaviour, a failed test, or one that takes longer than the time limit: the last line names it.
pub fn run() -> Result<Outcome> {
    let mut install = Command::new("rustup");
    install.args([
        "toolchain",
        "install",
        "nightly",
        "--profile",
        "minimal",
        "--component",
        "miri",
        "--component",
        "rust-src",
        "--no-self-update",
    ]);
    let present = || {
        shell::succeeds(Command::new("rustup").args([
            "run",
            "nightly",
            "cargo",
            "miri",
            "--version",
        ]))
    };
    if !present() && (!shell::succeeds(&mut install) || !present()) {
        return Ok(Outcome::Skipped("no nightly compiler with Miri here"));
    }
    let deadline = Instant::now() + LIMIT;
    for run in RUNS {
        let mut command = Command::new("rustup");
        command
            .args(["run", "nightly", "cargo", "miri", "test"])
            .args(["-p", run.package, "--lib", "--"])
            .args(run.tests)
            .current_dir(shell::root())
            // A separate folder keeps the artifacts of the other compiler.
            .env("CARGO_TARGET_DIR", shell::target_folder().join("miri"))
            .env("MIRIFLAGS", run.flags)
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN");
        shell::run_until(&mut command, deadline)?;
    }
    Ok(Outcome::Passed)
}
