//! Builds the tests with their makefile, statically linked.

use super::list::Test;
use super::source::Source;
use crate::{install, shell};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the programs of these tests, unless they are built already. Returns their folder.
///
/// # Errors
/// If a tool is missing and cannot be installed, or if a program does not build.
pub fn build(source: &Source, tests: &[&Test]) -> Result<PathBuf> {
    let output = source.folder.join("build");
    fs::create_dir_all(&output)?;
    let tests_of_mm = source.folder.join("source/tools/testing/selftests/mm");
    forget_without_rings(&tests_of_mm, &output)?;
    let wanted: BTreeSet<&str> = tests.iter().map(|test| test.program.as_str()).collect();
    let missing: Vec<PathBuf> = wanted
        .iter()
        .map(|program| output.join(program))
        .filter(|program| !program.is_file())
        .collect();
    if missing.is_empty() {
        return Ok(output);
    }
    install::install_packages(&[
        install::MAKE,
        install::LIBCAP,
        install::LIBNUMA,
        install::LIBURING,
    ])?;
    let tree = source.folder.join("source");
    if !tree.join("usr/include/linux/mman.h").is_file() {
        let mut headers = make(source)?;
        headers.arg("headers").current_dir(&tree);
        shell::run(&mut headers).with_context(|| format!("see {}", log(source).display()))?;
    }
    let mut programs = make(source)?;
    let mut folder = std::ffi::OsString::from("OUTPUT=");
    folder.push(&output);
    programs
        .arg(folder)
        .args(["ARCH=x86_64", "EXTRA_CFLAGS=-static"]);
    programs.args(&missing).current_dir(tests_of_mm);
    shell::run(&mut programs).with_context(|| format!("see {}", log(source).display()))?;
    Ok(output)
}

/// Removes the programs that were built while liburing was missing. They lack the subtests that use io_uring, so they
/// must be built again.
fn forget_without_rings(tests: &Path, output: &Path) -> Result<()> {
    // The names of the file that records whether the build found liburing: the name up to Linux 7.2, and the name in
    // later versions.
    let names = ["local_config.h", "local_config.h_gen"].map(|name| tests.join(name));
    let Some(configured) = names.into_iter().find(|file| file.is_file()) else {
        return Ok(());
    };
    let text = fs::read_to_string(&configured)?;
    if text.contains("LOCAL_CONFIG_HAVE_LIBURING") {
        return Ok(());
    }
    let programs = ["cow", "gup_longterm"].map(|program| output.join(program));
    let stale = programs
        .into_iter()
        .chain([tests.join("local_config.mk"), configured]);
    for file in stale.filter(|file| file.exists()) {
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    Ok(())
}

fn log(source: &Source) -> PathBuf {
    source.folder.join("make.log")
}

/// Returns a make command that appends its output to the log.
fn make(source: &Source) -> Result<Command> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(log(source))?;
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut command = Command::new("make");
    command.arg(format!("-j{jobs}"));
    command.stdout(log.try_clone()?).stderr(log);
    // Cargo sets these variables for its tasks; they must not affect make.
    command
        .env_remove("MAKEFLAGS")
        .env_remove("CARGO_MAKEFLAGS");
    Ok(command)
}
