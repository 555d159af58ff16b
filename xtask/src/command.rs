//! Builds the `memwright` command for the tasks that start it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Result;

use crate::shell;

/// The command that the build of the tests produced.
struct OfTests {
    path: PathBuf,
    /// The image of Memwright's kernel that the command boots; `None` if the command contains a kernel.
    kernel: Option<PathBuf>,
}

static OF_TESTS: OnceLock<OfTests> = OnceLock::new();

/// Records the path of the command that the tests use. If the command contains no kernel, also records the image of
/// Memwright's kernel. Later stages then use the same command and kernel. A separate build would compile the command
/// again, because a build of the whole workspace enables other features of shared crates.
pub fn of_tests(path: PathBuf, kernel: Option<PathBuf>) {
    // `set` fails if the path is already recorded. A second build produces the same path, so ignore the failure.
    let _ = OF_TESTS.set(OfTests { path, kernel });
}

/// Returns a command that starts the `memwright` at this path, with the kernel that the tests boot.
pub fn start(memwright: &Path) -> Command {
    let mut command = Command::new(memwright);
    command.envs(kernel());
    command
}

/// Returns the environment variable that names the image of Memwright's kernel; `None` if the command contains a
/// kernel.
pub fn kernel() -> Option<(&'static str, &'static Path)> {
    let kernel = OF_TESTS.get()?.kernel.as_deref()?;
    Some(("MEMWRIGHT_KERNEL", kernel))
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
    if let Some(OfTests { path, .. }) = OF_TESTS.get() {
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
