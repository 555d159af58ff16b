//! Programs that tasks need and that are not in Debian. Each is built once, in the cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{apt, shell};

/// Returns the path of a program of a package of crates.io. Builds the program if it is not in the cache. `takes` is
/// the expected time of the build, in words.
///
/// # Errors
/// If the program cannot be built.
pub fn of_crates_io(
    (package, version): (&str, &str),
    program: &str,
    takes: &str,
) -> Result<PathBuf> {
    let name = format!("{program}-{version}");
    cached(&name, &format!("bin/{program}"), takes, |work| {
        let mut install = shell::cargo(["install", "-q", package, "--locked", "--version"]);
        install.args([&format!("={version}"), "--root"]).arg(work);
        shell::run(&mut install)
            .with_context(|| format!("crates.io is not reachable, or {program} does not build"))
    })
}

/// Returns the path of a program in the folder `name` of the cache. If the folder is missing, calls `build` with the
/// path of a temporary folder to fill. `takes` is the expected time of the build, in words.
///
/// # Errors
/// Those of `build`, and an error if a folder cannot be created.
pub fn cached(
    name: &str,
    program: &str,
    takes: &str,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let tools = apt::cache_folder("tools")?;
    let folder = tools.join(name);
    let path = folder.join(program);
    if path.exists() {
        return Ok(path);
    }
    shell::step(&format!(
        "building {name} into {} once: {takes}",
        folder.display()
    ));
    // The temporary folder is renamed when it is complete, because another task may build the same program at the same
    // time.
    let work = tools.join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let built = build(&work);
    if built.is_ok() && fs::rename(&work, &folder).is_ok() {
        return Ok(path);
    }
    fs::remove_dir_all(&work)?;
    built.with_context(|| format!("{name} is not in {} and cannot be built", tools.display()))?;
    ensure!(path.exists(), "cannot name {}", folder.display());
    Ok(path)
}
