//! The `memwright` command that tasks start.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Result;

use crate::shell;

/// Where the tests' build has put it, once they are built.
static OF_TESTS: OnceLock<PathBuf> = OnceLock::new();

/// Lets the stages after the tests use the command that the tests use: built alone, it would be built again, because the
/// workspace's packages together enable other features of the crates that they share.
pub fn of_tests(path: PathBuf) {
    // A second build makes the same.
    let _ = OF_TESTS.set(path);
}

/// How the command is built where no tests were built before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Dev,
    Release,
}

/// The command that the tests use, or else one that is built now.
///
/// # Errors
/// When it does not build.
pub fn built(profile: Profile) -> Result<PathBuf> {
    if let Some(path) = OF_TESTS.get() {
        return Ok(path.clone());
    }
    let mut build = shell::cargo(["build", "-q", "-p", "memwright-cli"]);
    let folder = match profile {
        Profile::Dev => "debug",
        Profile::Release => {
            build.arg("--release");
            "release"
        }
    };
    shell::run(&mut build)?;
    Ok(shell::target_folder().join(folder).join("memwright"))
}
