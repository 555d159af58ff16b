//! Access to Debian's archive through private package lists. The system's lists are neither read nor changed, and
//! packages are unpacked, not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// The keyring with the keys that sign Debian's archive. Every Debian system has it.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Package lists of some suites of the archive, such as `unstable`.
pub struct Archive {
    /// The folder with the package lists and the other files that apt writes.
    folder: PathBuf,
}

impl Archive {
    /// Fetches the package lists of the suites. Skips suites that the mirror does not have.
    ///
    /// # Errors
    /// If a tool of Debian is missing, or no mirror of Debian is configured for apt.
    pub fn open(folder: PathBuf, suites: &[impl AsRef<str>]) -> Result<Self> {
        for program in ["apt-get", "apt-cache", "dpkg"] {
            ensure!(
                shell::which(program).is_some(),
                "there is no {program} here"
            );
        }
        for name in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let mirror = mirror()?;
        let lines = suites.iter().map(|suite| {
            format!(
                "deb [signed-by={KEYRING}] {mirror} {} main\n",
                suite.as_ref()
            )
        });
        fs::write(folder.join("sources.list"), lines.collect::<String>())?;
        let archive = Self { folder };
        shell::succeeds(archive.command("apt-get").arg("update"));
        Ok(archive)
    }

    /// Returns an apt command that reads and writes package lists, caches and state only in the folder of this archive.
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

    /// Returns the highest version of a package in the suites.
    ///
    /// # Errors
    /// If no suite has the package.
    pub fn newest(&self, package: &str) -> Result<String> {
        let listing = shell::output(self.command("apt-cache").args(["madison", package]));
        let versions = versions(listing.as_deref().unwrap_or_default(), package);
        newest_of(versions).with_context(|| format!("no suite has {package}"))
    }

    /// Downloads a version of a package and unpacks it into the folder `root`, which may contain other unpacked
    /// packages.
    ///
    /// # Errors
    /// If the package cannot be downloaded or unpacked.
    pub fn unpack(&self, package: &str, version: &str, root: &Path) -> Result<()> {
        let wanted = format!("{package}={version}");
        let folder = root.join("downloaded");
        fs::create_dir_all(&folder)?;
        let mut download = self.command("apt-get");
        download
            .args(["-qq", "download", &wanted])
            .current_dir(&folder);
        ensure!(
            shell::succeeds(&mut download),
            "apt-get cannot download {wanted}"
        );
        let files = fs::read_dir(&folder)?;
        let file = files.flatten().next().context("apt-get left no package")?;
        let mut dpkg = Command::new("dpkg");
        shell::run(dpkg.arg("-x").arg(file.path()).arg(root))?;
        fs::remove_dir_all(&folder)?;
        Ok(())
    }
}

/// Returns the folder `$XDG_CACHE_HOME/memwright/NAME`, or `~/.cache/memwright/NAME` if that variable is not set.
///
/// # Errors
/// If neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache_folder(name: &str) -> Result<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match (named("XDG_CACHE_HOME"), named("HOME")) {
        (Some(cache), _) => Some(PathBuf::from(cache)),
        (None, Some(home)) => Some(PathBuf::from(home).join(".cache")),
        (None, None) => None,
    };
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME says where to keep files")?;
    Ok(cache.join("memwright").join(name))
}

/// Returns the highest of `versions` in the order of dpkg.
pub fn newest_of(versions: Vec<String>) -> Option<String> {
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

/// Returns the address of the mirror of Debian's archive that is configured for apt on this machine.
///
/// # Errors
/// If apt has no such mirror.
pub fn mirror() -> Result<String> {
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

/// Returns the address of the main archive from lines `label|address`.
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
}
