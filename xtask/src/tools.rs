//! Programs that tasks need and that no package of Debian has: built once into the cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{apt, shell};

/// Returns the path of a program of a package of crates.io; builds it if the cache lacks it. `takes` says how long that
/// is.
///
/// # Errors
/// It cannot be built.
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

/// Returns the path of a program in a folder of the cache. `build` makes the folder if it is missing.
///
/// # Errors
/// Those of `build`, or a folder that cannot be made.
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
    // A temporary folder, renamed when it is complete: another run may do the same at the same time.
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
