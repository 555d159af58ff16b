//! Builds the `memwright` command for the tasks that start it.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Result;

use crate::shell;

/// The path of the command that the build of the tests produced, if the tests have been built.
static OF_TESTS: OnceLock<PathBuf> = OnceLock::new();

/// Records the path of the command that the tests use, so that later stages use the same command. A separate build
/// would compile the command again, because a build of the whole workspace enables other features of shared crates.
pub fn of_tests(path: PathBuf) {
    // `set` fails if the path is already recorded. A second build produces the same path, so ignore the failure.
    let _ = OF_TESTS.set(path);
}

/// The profile with which the command is built if the tests have not built it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Dev,
    Release,
}

/// Returns the path of the command that the tests use. If there is none, builds the command first.
///
/// # Errors
/// If the command does not build.
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
