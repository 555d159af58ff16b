//! Checks of the source: format, lints, documentation, the oldest compiler.

use crate::tier::Outcome;
use crate::{install, shell};
use anyhow::Result;
use std::process::Command;
use std::time::Instant;

/// The oldest compiler that the library crates support.
const OLDEST: &str = "1.85";

/// The crates that support it: what an embedder takes, and the machine to test it on. The personality, the kernel and
/// the command are built together, with the compiler that their `rust-version` names.
const LIBRARIES: &[&str] = &["memwright-table", "memwright", "memwright-sim"];

/// Checks that the source is formatted as `cargo fmt` does it.
///
/// # Errors
/// A file is not, or the deadline passes.
pub fn format(deadline: Instant) -> Result<Outcome> {
    cargo(&["fmt", "--all", "--", "--check"], &[], deadline)
}

/// Checks that clippy reports nothing for what runs on the host.
///
/// # Errors
/// Clippy reports something, or the deadline passes.
pub fn host_lints(deadline: Instant) -> Result<Outcome> {
    cargo(
        &["clippy", "--all-targets", "--", "-D", "warnings"],
        &[],
        deadline,
    )
}

/// Checks that clippy reports nothing for the kernel.
///
/// # Errors
/// Clippy reports something, or the deadline passes.
pub fn kernel_lints(deadline: Instant) -> Result<Outcome> {
    let target = install::KERNEL_TARGET;
    let package = ["clippy", "-p", "memwright-kernel", "--target", target];
    let arguments = [&package[..], &["--", "-D", "warnings"]].concat();
    cargo(&arguments, &[], deadline)
}

/// Checks that the documentation builds without a warning.
///
/// # Errors
/// rustdoc reports something, or the deadline passes.
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

/// Checks that the library crates build with the oldest supported compiler. Skipped if it cannot be installed.
///
/// # Errors
/// A crate does not compile with it, or the deadline passes.
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
    // A separate folder, so that it does not replace the artifacts of the other compiler.
    check
        .env("CARGO_TARGET_DIR", shell::target_folder().join("oldest"))
        .env_remove("CARGO")
        .env_remove("RUSTC");
    shell::run_until(&mut check, deadline)?;
    Ok(Outcome::Passed)
}
