//! `cargo xtask architectures`: runs the tests of the libraries on simulated machines whose page tables are not those of
//! x86-64.
//!
//! The architecture of the simulated machine is chosen for a whole build, by a flag of the compiler, so each
//! architecture has a target folder of its own.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// The architectures besides x86-64, by the values of the compiler's flag.
pub const OTHERS: [&str; 2] = ["aarch64", "riscv64"];

/// The tests of the simulated machine that try every order of steps. They take ten times as long as all others together.
const LONG: &str = "interleavings";

/// Makes `command`, a call of cargo, build for a simulated machine of `architecture`, into a folder of its own.
pub fn simulate(command: &mut Command, architecture: &str) {
    command
        .env("RUSTFLAGS", format!("--cfg simulated=\"{architecture}\""))
        .env(
            "CARGO_TARGET_DIR",
            shell::target_folder().join(architecture),
        );
}

/// Runs the tests on each of these architectures, or on all, if none is named. With `--all`, runs the tests of all orders
/// of steps too.
///
/// # Errors
/// If a test fails, or if an argument is unknown.
pub fn run(arguments: &[&str]) -> Result<()> {
    let (named, long) = match arguments {
        ["--all", named @ ..] => (named, true),
        named => (named, false),
    };
    if let Some(unknown) = named.iter().find(|name| !OTHERS.contains(name)) {
        bail!("no simulated machine is {unknown}: {}", OTHERS.join(", "));
    }
    for architecture in OTHERS {
        if named.is_empty() || named.contains(&architecture) {
            let libraries = ["test", "-q", "-p", "memwright-table", "-p", "memwright"];
            test(architecture, shell::cargo(libraries))?;
            let mut simulator = shell::cargo(["test", "-q", "-p", "memwright-sim", "--lib"]);
            for name in test_binaries()? {
                if long || name != LONG {
                    simulator.args(["--test", &name]);
                }
            }
            test(architecture, simulator)?;
        }
    }
    Ok(())
}

fn test(architecture: &str, mut command: Command) -> Result<()> {
    simulate(&mut command, architecture);
    shell::run(&mut command)
}

/// Returns the names of the test binaries of `memwright-sim`.
fn test_binaries() -> Result<Vec<String>> {
    let folder = shell::root().join("crates/memwright-sim/tests");
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    let is_binary = |path: &PathBuf| {
        path.join("main.rs").exists() || path.extension().is_some_and(|rest| rest == "rs")
    };
    let mut names: Vec<String> = paths
        .into_iter()
        .filter(is_binary)
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_tests_are_among_the_binaries_and_helpers_are_not() {
        let names = test_binaries().unwrap();
        assert!(names.iter().any(|name| name == LONG));
        assert!(names.iter().any(|name| name == "programs"));
        assert!(!names.iter().any(|name| name == "support"));
    }
}
