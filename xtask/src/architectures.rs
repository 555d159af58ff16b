//! `cargo xtask architectures`: runs the tests of the libraries on simulated machines whose page tables are not those of
//! x86-64.
//!
//! The architecture of the simulated machine is chosen for a whole build, by a flag of the compiler, so each
//! architecture has a target folder of its own.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// A simulated machine that is not one of x86-64.
struct Flavour {
    name: &'static str,
    /// The compiler flags that select this machine.
    flags: &'static str,
    /// Whether the processors fault instead of setting accessed and dirty bits.
    by_fault: bool,
}

const FLAVOURS: [Flavour; 6] = [
    Flavour {
        name: "aarch64",
        flags: "--cfg simulated=\"aarch64\"",
        by_fault: false,
    },
    Flavour {
        name: "riscv64",
        flags: "--cfg simulated=\"riscv64\"",
        by_fault: false,
    },
    Flavour {
        name: "riscv64-sv39",
        flags: "--cfg simulated=\"riscv64\" --cfg simulated_sv39",
        by_fault: false,
    },
    Flavour {
        name: "aarch64-by-fault",
        flags: "--cfg simulated=\"aarch64\" --cfg simulated_by_fault",
        by_fault: true,
    },
    Flavour {
        name: "riscv64-by-fault",
        flags: "--cfg simulated=\"riscv64\" --cfg simulated_by_fault",
        by_fault: true,
    },
    Flavour {
        name: "riscv64-sv39-by-fault",
        flags: "--cfg simulated=\"riscv64\" --cfg simulated_sv39 --cfg simulated_by_fault",
        by_fault: true,
    },
];

/// The test binary that tries every order of steps. It takes ten times as long as all other binaries together.
const LONG: &str = "interleavings";

/// The test binaries that run on processors that fault instead of setting accessed and dirty bits. The other binaries
/// count faults, or do not handle faults.
const BY_FAULT: [&str; 9] = [
    "cow",
    "extremes",
    "failures",
    "hugetlb",
    "merge",
    "numa",
    "programs",
    "swap",
    "swap_wait",
];

/// The packages of the libraries.
const LIBRARIES: &[&str] = &["-p", "memwright-table", "-p", "memwright"];

/// The package of the adapters.
const ADAPTERS: &[&str] = &["-p", "memwright-adapters", "--tests"];

/// Makes `command`, a call of cargo, build for the simulated machine `name`, in a separate target folder.
///
/// # Errors
/// If there is no such machine.
pub fn simulate(command: &mut Command, name: &str) -> Result<()> {
    let flavour = FLAVOURS.iter().find(|flavour| flavour.name == name);
    let names = || FLAVOURS.map(|flavour| flavour.name).join(", ");
    let flavour =
        flavour.with_context(|| format!("no simulated machine is {name}: {}", names()))?;
    command
        .env("RUSTFLAGS", flavour.flags)
        .env("CARGO_TARGET_DIR", shell::target_folder().join(name));
    Ok(())
}

/// Runs the tests on each of the named machines. If none is named, runs them on the machines that set accessed and
/// dirty bits or, with `--all`, on all machines. `--all` also adds the tests of all orders of steps, on machines that
/// set the bits.
///
/// # Errors
/// If a test does not compile or fails, or if an argument is unknown.
pub fn run(arguments: &[&str]) -> Result<()> {
    let (named, all) = match arguments {
        ["--all", named @ ..] => (named, true),
        named => (named, false),
    };
    for name in named {
        simulate(&mut Command::new("cargo"), name)?;
    }
    for flavour in &FLAVOURS {
        let is_default = named.is_empty() && (all || !flavour.by_fault);
        if is_default || named.contains(&flavour.name) {
            test(flavour, all)?;
        }
    }
    Ok(())
}

/// Runs the tests on one machine, including those of all orders of steps if `all`. If the processors fault instead of
/// setting bits, runs only the tests of [`BY_FAULT`] and the unit tests of the simulator.
fn test(flavour: &Flavour, all: bool) -> Result<()> {
    if !flavour.by_fault {
        for packages in [LIBRARIES, ADAPTERS] {
            let mut libraries = shell::cargo(["test", "-q"]);
            libraries.args(packages);
            simulate(&mut libraries, flavour.name)?;
            shell::run(&mut libraries)?;
        }
    }
    let mut simulator = shell::cargo(["test", "-q", "-p", "memwright-sim", "--lib"]);
    simulate(&mut simulator, flavour.name)?;
    for binary in test_binaries()? {
        let runs = match flavour.by_fault {
            true => BY_FAULT.contains(&binary.as_str()),
            false => all || binary != LONG,
        };
        if runs {
            simulator.args(["--test", &binary]);
        }
    }
    shell::run(&mut simulator)
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
        for name in BY_FAULT.iter().chain([&LONG]) {
            assert!(names.iter().any(|binary| binary == name), "{name}");
        }
        assert!(!names.iter().any(|name| name == "support"));
    }
}
