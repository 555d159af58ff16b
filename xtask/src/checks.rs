//! Checks the source: its format, lints, its documentation, and a build by the oldest supported compiler.

use crate::tier::Outcome;
use crate::{example, install, shell};
use anyhow::Result;
use std::process::Command;
use std::time::Instant;

/// The oldest compiler that the library crates support.
const OLDEST: &str = "1.85";

/// The crates that must build with `OLDEST`: those that an embedder uses, also for tests, and the simulated machine. The
/// other crates need the compiler that their `rust-version` names.
const LIBRARIES: &[&str] = &[
    "memwright-table",
    "memwright",
    "memwright-testkit",
    "memwright-sim",
];

/// Checks that the source is formatted by `cargo fmt`.
///
/// # Errors
/// If a file is not formatted, or if the deadline passes.
pub fn format(deadline: Instant) -> Result<Outcome> {
    cargo(&["fmt", "--all", "--", "--check"], &[], deadline)
}

/// Checks that clippy reports no warning for the host's targets.
///
/// # Errors
/// If clippy reports a warning or an error, or if the deadline passes.
pub fn host_lints(deadline: Instant) -> Result<Outcome> {
    cargo(
        &["clippy", "--all-targets", "--", "-D", "warnings"],
        &[],
        deadline,
    )
}

/// Checks that clippy reports no warning for the kernel and for the example kernel.
///
/// # Errors
/// If clippy reports a warning or an error, or if the deadline passes.
pub fn kernel_lints(deadline: Instant) -> Result<Outcome> {
    let target = install::KERNEL_TARGET;
    let package = ["clippy", "-p", "memwright-kernel", "--target", target];
    let arguments = [&package[..], &["--", "-D", "warnings"]].concat();
    cargo(&arguments, &[], deadline)?;
    example::lint(deadline)?;
    Ok(Outcome::Passed)
}

/// Checks that the documentation builds without a warning.
///
/// # Errors
/// If rustdoc reports a warning or an error, or if the deadline passes.
pub fn documentation(deadline: Instant) -> Result<Outcome> {
    cargo(
        &["doc", "--no-deps"],
        &[("RUSTDOCFLAGS", "-D warnings")],
        deadline,
    )
}

fn cargo(arguments: &[&str], variables: &[(&str, &str)], deadline: Instant) -> Result<Outcome> {
    let mut command = shell::cargo(arguments);
    command.envs(variables.iter().copied());
    shell::run_until(&mut command, deadline)?;
    Ok(Outcome::Passed)
}

/// Checks that the library crates build with the oldest supported compiler. Skipped if that compiler cannot be
/// installed.
///
/// # Errors
/// If a crate does not build with that compiler, or if the deadline passes.
pub fn oldest_compiler(deadline: Instant) -> Result<Outcome> {
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
    // Build in a separate folder, because the build would otherwise replace the artifacts of the usual compiler.
    check
        .env("CARGO_TARGET_DIR", shell::target_folder().join("oldest"))
        .env_remove("CARGO")
        .env_remove("RUSTC");
    shell::run_until(&mut check, deadline)?;
    Ok(Outcome::Passed)
}
