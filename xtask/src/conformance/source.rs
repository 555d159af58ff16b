//! The sources of the tests: Debian's package of the kernel sources, which apt downloads into a private cache.

use super::settings::Settings;
use crate::apt::{self, Archive};
use crate::{install, shell};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts of the sources that are unpacked: the files that `make headers` and the tests need.
const PARTS: &[&str] = &[
    "*/Makefile",
    "*/scripts",
    "*/include/uapi",
    "*/include/asm-generic",
    "*/include/vdso",
    "*/arch/x86/Makefile*",
    "*/arch/x86/include",
    "*/arch/x86/entry/syscalls",
    "*/usr",
    "*/tools/include",
    "*/tools/scripts",
    "*/tools/arch/x86/include",
    "*/tools/testing/selftests",
    "*/mm/gup_test.h",
    "*/lib/test_hmm_uapi.h",
];

/// Unpacked kernel sources.
pub struct Source {
    /// The version of the package, or a name for the archive that was given.
    pub version: String,
    /// The folder with the sources in `source` and the built programs in `build`.
    pub folder: PathBuf,
}

/// Returns the sources from the cache. If they are not in the cache, downloads and unpacks them first.
///
/// # Errors
/// If the sources are not available. The error gives the reason.
pub fn obtain(settings: &Settings) -> Result<Source> {
    let cache = apt::cache_folder("selftests")?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    if let Some(archive) = &settings.source {
        let name = archive.file_name().context("the archive has no name")?;
        let name = name.to_string_lossy();
        let size = fs::metadata(archive)
            .with_context(|| archive.display().to_string())?
            .len();
        let version = format!("{name}-{size}");
        return unpacked(&cache, version, |_| Ok(archive.clone()));
    }
    if !settings.newest
        && let Some(version) = newest_cached(&cache, settings.series())?
    {
        return unpacked(&cache, version, |_| bail!("the cache lost its sources"));
    }
    let package = format!("linux-source-{}", settings.series());
    shell::step(&format!(
        "looking for {package} in {}",
        settings.suites.join(", ")
    ));
    let archive = Archive::open(cache.join("apt"), &settings.suites)?;
    let version = archive.newest(&package)?;
    unpacked(&cache, version.clone(), |work| {
        download(&archive, &package, &version, work)
    })
}

/// Downloads and unpacks a package of sources. Returns the path of the source archive in the package.
fn download(archive: &Archive, name: &str, version: &str, work: &Path) -> Result<PathBuf> {
    let package = work.join("package");
    shell::step(&format!("fetching {name}={version} (about 160 MB)"));
    archive.unpack(name, version, &package)?;
    let sources = package.join(format!("usr/src/{name}.tar.xz"));
    ensure!(
        sources.is_file(),
        "{name}={version} holds no archive of sources"
    );
    Ok(sources)
}

/// Returns the newest version of the kernel series in the cache, if there is one.
fn newest_cached(cache: &Path, series: &str) -> Result<Option<String>> {
    let mut versions = Vec::new();
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let numbered = name
            .strip_prefix(series)
            .is_some_and(|rest| rest.starts_with('.'));
        if numbered && entry.path().join("source").is_dir() {
            versions.push(name);
        }
    }
    Ok(apt::newest_of(versions))
}

/// Returns the sources of this version. If they are not in the cache, calls `fetch` with the path of a temporary folder
/// to download their archive, and unpacks it.
fn unpacked(
    cache: &Path,
    version: String,
    fetch: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<Source> {
    let folder = cache.join(&version);
    let source = Source { version, folder };
    if source.folder.join("source").is_dir() {
        return Ok(source);
    }
    // The temporary folder is renamed when it is complete, because another task may unpack the same sources at the same
    // time.
    let work = cache.join(format!("unpacking-{}", std::process::id()));
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(work.join("source"))?;
    let archive = fetch(&work)?;
    install::install_packages(&[install::XZ])?;
    let mut tar = Command::new("tar");
    tar.arg("-C")
        .arg(work.join("source"))
        .arg("-xf")
        .arg(&archive);
    tar.args([
        "--strip-components=1",
        "--wildcards",
        "--no-wildcards-match-slash",
    ]);
    shell::run(tar.args(PARTS))?;
    if archive.starts_with(&work) {
        fs::remove_dir_all(work.join("package"))?;
    }
    if fs::rename(&work, &source.folder).is_err() {
        fs::remove_dir_all(&work)?;
    }
    ensure!(
        source.folder.join("source").is_dir(),
        "cannot name {}",
        source.folder.display()
    );
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_searched_by_series() {
        let folder = std::env::temp_dir().join(format!("memwright-series-{}", std::process::id()));
        for name in ["7.2.3-1/source", "7.20.1-1/source", "apt", "7.2.9-1"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        assert_eq!(
            newest_cached(&folder, "7.2").unwrap().as_deref(),
            Some("7.2.3-1")
        );
        assert_eq!(newest_cached(&folder, "7.3").unwrap(), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
