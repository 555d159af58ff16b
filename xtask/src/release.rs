//! `cargo xtask release-check`: checks the conditions for publishing the libraries. It does not publish them.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{shell, tools};

/// The crates that are published, in the order of their dependencies.
const PUBLISHED: [&str; 5] = [
    "memwright-table",
    "memwright",
    "memwright-testkit",
    "memwright-sim",
    "memwright-mark",
];

/// The version of cargo-deny that is used.
const DENY: &str = "0.20.2";
/// The version of cargo-semver-checks that is used.
const SEMVER_CHECKS: &str = "0.51.0";

/// A target with another processor, for which the libraries must compile, because it can simulate an x86-64 machine.
const ELSEWHERE: &str = "aarch64-unknown-none";

/// The files that each package must contain.
const INCLUDED: [&str; 4] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Checks the packages, the licences and sources of their dependencies, the compatibility with the revision `against`
/// or with the last release, and that the libraries compile for another processor.
///
/// # Errors
/// If a check fails, or if a program that a check needs cannot be built. Stops at the first error.
pub fn check(against: Option<&str>) -> Result<()> {
    contents()?;
    packages()?;
    dependencies()?;
    compatibility(against)?;
    portability()
}

/// Checks that each package contains its changes, its licences and its first page.
fn contents() -> Result<()> {
    for name in PUBLISHED {
        let mut command =
            shell::cargo(["package", "--list", "--locked", "--allow-dirty", "-p", name]);
        let listed = shell::output(&mut command);
        let listed = listed.with_context(|| format!("`{}` failed", shell::line(&command)))?;
        for file in INCLUDED {
            ensure!(
                listed.lines().any(|line| line == file),
                "the package {name} has no {file}"
            );
        }
    }
    Ok(())
}

/// Packages each crate, and builds it from the package. The source must be committed.
fn packages() -> Result<()> {
    // Use a new folder for each check. Cargo caches the source of a package by its name, version and folder, so in an
    // existing folder it would build the source of an earlier check.
    let folder = shell::target_folder().join(format!("packages-{}", std::process::id()));
    let mut command = shell::cargo(["publish", "--dry-run", "--locked", "--target-dir"]);
    command.arg(&folder);
    for name in PUBLISHED {
        command.args(["-p", name]);
    }
    let packed = shell::run(&mut command);
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    packed
}

/// Checks the licences, the banned crates and the sources of the dependencies against `deny.toml`.
fn dependencies() -> Result<()> {
    let mut command = started("cargo-deny", DENY, "about 3 minutes on two cores")?;
    command.args(["--workspace", "check", "licenses", "bans", "sources"]);
    shell::run(&mut command)
}

/// Compares the public items of each library with those of the revision `against`. The default is the last release,
/// which is the last tag `v...`.
fn compatibility(against: Option<&str>) -> Result<()> {
    let mut tags = Command::new("git");
    tags.args(["describe", "--tags", "--abbrev=0", "--match", "v*"]);
    let given = against.map(str::to_owned);
    let Some(last) = given.or_else(|| shell::output(tags.current_dir(shell::root()))) else {
        shell::step("no release to be compatible with: there is no tag v*");
        return Ok(());
    };
    for name in PUBLISHED {
        let mut command = started(
            "cargo-semver-checks",
            SEMVER_CHECKS,
            "about 6 minutes on two cores",
        )?;
        command.args(["semver-checks", "-p", name, "--baseline-rev", last.trim()]);
        shell::run(&mut command)?;
    }
    Ok(())
}

/// Checks that the libraries compile for another processor.
fn portability() -> Result<()> {
    shell::run(Command::new("rustup").args(["target", "add", ELSEWHERE]))?;
    let mut command = shell::cargo(["check", "--locked", "-q", "-p", "memwright"]);
    command.args(["-p", "memwright-testkit"]);
    command.args(["--target", ELSEWHERE]);
    shell::run(&mut command)
}

/// Returns a command that runs a program of crates.io in the root of the workspace. Builds the program first if it is
/// not in the cache.
fn started(program: &str, version: &str, takes: &str) -> Result<Command> {
    let path = tools::of_crates_io((program, version), program, takes)?;
    let mut command = Command::new(path);
    command.current_dir(shell::root());
    Ok(command)
}
