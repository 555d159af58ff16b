//! The sources of the tests: Debian's package of the kernel sources, fetched with apt into a private cache.

use super::settings::Settings;
use crate::{install, shell};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The key that signs Debian's archive; part of Debian itself.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The parts of the sources that are unpacked: what `make headers` and the tests read.
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

/// Unpacked sources.
pub struct Source {
    /// The version of the package, or the name of the given archive.
    pub version: String,
    /// Contains the sources in `source`, and what is built from them in `build`.
    pub folder: PathBuf,
}

/// Finds the sources in the cache, or fetches and unpacks them.
///
/// # Errors
/// The sources are not available; the error gives the reason.
pub fn obtain(settings: &Settings) -> Result<Source> {
    let cache = cache_folder()?;
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
        && let Some(version) = newest_cached(&cache, &settings.version)?
    {
        return unpacked(&cache, version, |_| bail!("the cache lost its sources"));
    }
    let archive = Archive::open(&cache, settings)?;
    let version = archive.newest()?;
    unpacked(&cache, version.clone(), |work| {
        archive.download(work, &version)
    })
}

/// Returns `$XDG_CACHE_HOME/memwright/selftests`, or the same in `~/.cache`.
fn cache_folder() -> Result<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match (named("XDG_CACHE_HOME"), named("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join(".cache"),
        (None, None) => bail!("neither XDG_CACHE_HOME nor HOME says where to keep sources"),
    };
    Ok(cache.join("memwright/selftests"))
}

/// Returns the newest version of `series` in the cache.
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
    Ok(newest_of(versions))
}

/// Returns the highest of Debian's version numbers, as dpkg compares them.
fn newest_of(versions: Vec<String>) -> Option<String> {
    versions.into_iter().reduce(|best, version| {
        let mut dpkg = Command::new("dpkg");
        dpkg.args(["--compare-versions", &version, "gt", &best]);
        if shell::succeeds(&mut dpkg) {
            version
        } else {
            best
        }
    })
}

/// Returns the sources of that version. `fetch` downloads their archive into a folder if the cache lacks them.
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
    // A temporary folder, renamed when it is complete: another run may do the same at the same time.
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

/// Debian's archive as seen through private package lists: the system's lists are neither read nor changed.
struct Archive {
    folder: PathBuf,
    package: String,
}

impl Archive {
    /// Fetches the lists of the suites. Skips suites that the mirror does not have.
    fn open(cache: &Path, settings: &Settings) -> Result<Self> {
        for program in ["apt-get", "apt-cache", "dpkg"] {
            ensure!(
                shell::which(program).is_some(),
                "there is no {program} here"
            );
        }
        let folder = cache.join("apt");
        for name in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let mirror = mirror()?;
        let lines = settings
            .suites
            .iter()
            .map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"));
        fs::write(folder.join("sources.list"), lines.collect::<String>())?;
        let package = format!("linux-source-{}", settings.version);
        let archive = Self { folder, package };
        shell::step(&format!(
            "looking for {} in {}",
            archive.package,
            settings.suites.join(", ")
        ));
        shell::succeeds(archive.command("apt-get").arg("update"));
        Ok(archive)
    }

    /// Returns an apt command that keeps everything that it reads and writes inside our folder.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (setting, value) in [
            ("Dir::Etc::sourcelist", self.folder.join("sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".into()),
            ("Dir::State::lists", self.folder.join("lists")),
            ("Dir::Cache", self.folder.clone()),
            ("Dir::Cache::archives", self.folder.join("archives")),
            ("Acquire::Languages", "none".into()),
            (
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled",
                "false".into(),
            ),
            ("APT::Sandbox::User", "root".into()),
        ] {
            command
                .arg("-o")
                .arg(format!("{setting}={}", value.display()));
        }
        command
    }

    /// Returns the newest version in any of the suites.
    fn newest(&self) -> Result<String> {
        let listing = shell::output(self.command("apt-cache").args(["madison", &self.package]));
        let versions = versions(listing.as_deref().unwrap_or_default(), &self.package);
        newest_of(versions).with_context(|| format!("no suite has {}", self.package))
    }

    /// Downloads and unpacks the package. Returns the archive inside.
    fn download(&self, work: &Path, version: &str) -> Result<PathBuf> {
        let package = work.join("package");
        fs::create_dir_all(&package)?;
        let wanted = format!("{}={version}", self.package);
        shell::step(&format!("fetching {wanted} (about 160 MB)"));
        let mut download = self.command("apt-get");
        download
            .args(["-qq", "download", &wanted])
            .current_dir(&package);
        ensure!(
            shell::succeeds(&mut download),
            "apt-get cannot download {wanted}"
        );
        let files = fs::read_dir(&package)?;
        let file = files.flatten().next().context("apt-get left no package")?;
        let mut dpkg = Command::new("dpkg");
        shell::run(dpkg.arg("-x").arg(file.path()).arg(&package))?;
        let archive = package.join(format!("usr/src/{}.tar.xz", self.package));
        ensure!(archive.is_file(), "{wanted} holds no archive of sources");
        Ok(archive)
    }
}

/// Returns the mirror of Debian's archive that this machine uses.
fn mirror() -> Result<String> {
    let mut apt = Command::new("apt-get");
    apt.args([
        "indextargets",
        "--format",
        "$(LABEL)|$(REPO_URI)",
        "Identifier: Packages",
    ]);
    let listing = shell::output(&mut apt).unwrap_or_default();
    let mirror = choose_mirror(&listing).map(str::to_owned);
    mirror.context("apt knows no mirror of Debian (apt-get update?)")
}

/// Picks the main archive from lines `label|address`.
fn choose_mirror(listing: &str) -> Option<&str> {
    listing
        .lines()
        .find_map(|line| line.strip_prefix("Debian|"))
}

/// Returns the versions in the output of `apt-cache madison`: `package | version | where`.
fn versions(listing: &str, package: &str) -> Vec<String> {
    let version = |line: &str| {
        let mut columns = line.split('|').map(str::trim);
        let same = columns.next() == Some(package);
        columns.next().filter(|_| same).map(str::to_owned)
    };
    listing.lines().filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_all_suites_is_taken() {
        let listing = " linux-source-7.2 | 7.2.9-1~bpo13+1 | http://a/ b/main amd64 Packages\n\
             linux-source-7.2 | 7.2.13-1 | http://a/ unstable/main amd64 Packages\n\
             linux-source | 7.3.1-1 | http://a/ unstable/main amd64 Packages\n";
        let found = versions(listing, "linux-source-7.2");
        assert_eq!(found, ["7.2.9-1~bpo13+1", "7.2.13-1"]);
        assert_eq!(newest_of(Vec::new()), None);
        if shell::which("dpkg").is_some() {
            assert_eq!(newest_of(found).as_deref(), Some("7.2.13-1"));
        }
    }

    #[test]
    fn the_mirror_is_the_systems_own() {
        let listing = "Debian-Security|http://a/\nDebian|http://b/debian/\nDebian|http://c/\n";
        assert_eq!(choose_mirror(listing), Some("http://b/debian/"));
        assert_eq!(choose_mirror("other|http://a/"), None);
    }

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
