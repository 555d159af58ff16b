//! Builds the `memwright` command that tasks start.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Result;

use crate::shell;

/// The path of the command that the test build produced, once it has.
static OF_TESTS: OnceLock<PathBuf> = OnceLock::new();

/// Makes the stages after the tests use the command that the tests use. If it were built alone, cargo would build it
/// again, because building the packages of the workspace together enables other features of the crates that they share.
pub fn of_tests(path: PathBuf) {
    // A second build produces the same path.
    let _ = OF_TESTS.set(path);
}

/// How the command is built if the tests have not built it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Dev,
    Release,
}

/// Returns the path of the command that the tests use, or builds it.
///
/// # Errors
/// The command does not build.
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
