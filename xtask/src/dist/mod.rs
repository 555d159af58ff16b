//! `cargo xtask dist`: builds a Debian package of the command, checks its contents, and tries it in a bare system.

mod binary;
mod check;
mod licences;
mod package;
mod trial;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

use crate::shell;
use crate::tier::Outcome;

/// The optimisation of the command in a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Optimised as in a release.
    Released,
    /// Optimised as for tests, which takes less time to build.
    Quick,
}

/// Builds the package and checks its contents. With `--try`, also installs it in a bare Debian and compares two kernels
/// there.
///
/// # Errors
/// If a tool is missing, if the package does not build, or if a check fails.
pub fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        [] => {
            let package = built(Build::Released)?;
            say(&check::check(&package)?);
            println!("{}", package.display());
        }
        ["--try"] => {
            let package = built(Build::Released)?;
            say(&check::check(&package)?);
            say(&trial::run(&package)?);
        }
        _ => bail!("dist takes no argument, or --try"),
    }
    Ok(())
}

/// Builds a package quickly and checks its contents: a stage of `cargo xtask ci`.
///
/// # Errors
/// If the package does not build, or if a check fails.
pub fn stage() -> Result<Outcome> {
    check::check(&built(Build::Quick)?)
}

fn say(outcome: &Outcome) {
    if let Outcome::Skipped(why) = outcome {
        println!("SKIPPED {why}");
    }
}

/// Returns the folder in which packages are built.
fn folder() -> PathBuf {
    shell::target_folder().join("dist")
}

/// Builds the package, and returns its path.
fn built(build: Build) -> Result<PathBuf> {
    let command = binary::build(build)?;
    package::write(&command, &folder())
}

/// Returns the path of a file in the workspace.
fn source(path: &str) -> PathBuf {
    shell::root().join(Path::new(path))
}
