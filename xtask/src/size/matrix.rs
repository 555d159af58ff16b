//! `cargo xtask features`: checks that the memory manager compiles with each choice of features that an embedder is
//! likely to make, and that its tests pass.

use std::process::Command;

use anyhow::{Result, bail};

use super::ceilings::{FEATURES, Feature};
use super::names;
use crate::shell;

/// The package.
const PACKAGE: &str = "memwright";

/// Compiles the memory manager with no feature, with each feature alone, with each one left out, and with all. A
/// warning is an error. Runs its tests with no feature and, with `--tests`, with every choice.
///
/// # Errors
/// If a choice does not compile, if a test fails, or if an argument is unknown.
pub fn run(arguments: &[&str]) -> Result<()> {
    let tests_all = match arguments {
        [] => false,
        ["--tests"] => true,
        _ => bail!("features takes no argument or --tests"),
    };
    for list in choices(FEATURES) {
        shell::run(cargo("check", &list).env("RUSTFLAGS", "-Dwarnings"))?;
        if list.is_empty() || tests_all {
            shell::run(cargo("test", &list).args(["--test", "scenarios"]))?;
        }
    }
    Ok(())
}

/// Returns a command of cargo for the memory manager with the features of `list`.
fn cargo(command: &str, list: &[&str]) -> Command {
    let mut command = shell::cargo([command, "-q", "--locked", "-p", PACKAGE]);
    command
        .args(["--no-default-features", "--features"])
        .arg(list.join(","))
        .arg("--target-dir")
        .arg(shell::target_folder().join("features"));
    command
}

/// Returns the choices of features, each as a list of names.
fn choices(all: &[Feature]) -> Vec<Vec<&'static str>> {
    let mut choices = vec![Vec::new()];
    choices.extend(all.iter().map(|feature| vec![feature.name]));
    choices.extend(all.iter().map(|feature| feature.without(all)));
    choices.push(names());
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_has_the_same_features() {
        let list: Vec<String> = FEATURES
            .iter()
            .map(|feature| format!("\"{}\"", feature.name))
            .collect();
        let default = format!("default = [{}]\n", list.join(", "));
        let library = include_str!("../../../crates/memwright/Cargo.toml");
        let kit = include_str!("../../../crates/memwright-testkit/Cargo.toml");
        let simulation = include_str!("../../../crates/memwright-sim/Cargo.toml");
        let program = include_str!("../../../crates/memwright-size/Cargo.toml");
        for manifest in [library, kit, simulation] {
            assert!(manifest.contains(&default), "{default}");
        }
        for Feature { name, .. } in FEATURES {
            for manifest in [kit, simulation] {
                assert!(manifest.contains(&format!("{name} = [\"memwright/{name}\"]")));
            }
            assert!(program.contains(&format!("{name} = [\"memwright?/{name}\"]")));
        }
    }

    #[test]
    fn each_feature_is_alone_once_and_left_out_once() {
        let choices = choices(FEATURES);
        assert_eq!(choices.len(), 2 + 2 * FEATURES.len());
        for Feature { name, .. } in FEATURES {
            let having = choices.iter().filter(|list| list.contains(name)).count();
            // A feature is also left out together with each feature that it needs.
            let needed = FEATURES
                .iter()
                .filter(|other| other.enabled_by.contains(name));
            assert_eq!(having, 1 + FEATURES.len() - needed.count(), "{name}");
        }
    }
}
