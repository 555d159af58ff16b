//! `cargo xtask miri`: runs unit tests of `memwright-table`, which contains `unsafe` code, and of `memwright` under
//! Miri, an interpreter that detects undefined behaviour.
//!
//! Miri needs minutes for tests that otherwise take seconds. Of `memwright-table`, it runs only the tests of locks,
//! handles, copies and tags, because the code of page-table entries is arithmetic without `unsafe`. Of `memwright`, it
//! runs all tests except those that are marked as ignored under Miri, each with a reason. Miri checks the aliasing
//! rules only in tests with little memory, because this check takes hours with thousands of frames.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::shell;

/// The time limit for all runs together, on any machine. A test that is too slow for this limit is ignored under Miri,
/// with a reason, or does less work under Miri.
const LIMIT: Duration = Duration::from_secs(12 * 60);

/// A run of unit tests of a crate under Miri.
struct Run {
    package: &'static str,
    /// The prefixes of the names of the tests; empty for all tests.
    tests: &'static [&'static str],
    flags: &'static str,
}

/// All runs permit casts of integers to pointers (permissive provenance), because `memory_base` returns an address that
/// the program did not allocate.
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

/// The outcome of the runs under Miri.
pub enum Outcome {
    Passed,
    /// Miri could not run, for this reason.
    Skipped(&'static str),
}

/// Runs the tests under Miri. Skips them if no nightly compiler with Miri can be installed.
///
/// # Errors
/// If a test has undefined behaviour, fails, or is still running at the time limit. The last line of the output names
/// the test.
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
            // Build in a separate folder, because the build would otherwise replace the artifacts of the usual
            // compiler.
            .env("CARGO_TARGET_DIR", shell::target_folder().join("miri"))
            .env("MIRIFLAGS", run.flags)
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN");
        shell::run_until(&mut command, deadline)?;
    }
    Ok(Outcome::Passed)
}
