//! Downloads packages of Debian's archive with apt's own tools and unpacks them into a private folder, without
//! installing them. Also finds which packages are installed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::host::bounded::{self, PATIENCE};
use crate::host::deb;

/// The keyring with the keys of Debian's archive, which is part of Debian.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One suite of Debian's archive. The folder `work` contains apt's package lists, settings and downloads.
#[derive(Debug)]
pub struct Archive<'a> {
    work: &'a Path,
    suite: &'a str,
}

impl<'a> Archive<'a> {
    /// Downloads the suite's package lists.
    ///
    /// # Errors
    /// One line if apt-get is missing or fails.
    pub fn open(work: &'a Path, mirror: &str, suite: &'a str) -> anyhow::Result<Self> {
        for name in ["lists/partial", "archives/partial", "root"] {
            fs::create_dir_all(work.join(name))?;
        }
        let source = format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        fs::write(work.join("sources.list"), source)?;
        let archive = Self { work, suite };
        archive.apt("apt-get", &["update".to_owned()])?;
        Ok(archive)
    }

    /// Returns the output of `apt-cache show` for these packages.
    ///
    /// # Errors
    /// One line if apt-cache is missing or fails. It fails if the suite does not contain one of the packages.
    pub fn show(&self, packages: &[&str]) -> anyhow::Result<String> {
        self.apt("apt-cache", &self.words("show", packages))
    }

    /// Returns the names of the suite's packages that begin with `beginning`, one per line.
    ///
    /// # Errors
    /// One line if apt-cache is missing or fails.
    pub fn names(&self, beginning: &str) -> anyhow::Result<String> {
        let words = ["pkgnames", beginning].map(str::to_owned);
        self.apt("apt-cache", &words)
    }

    /// Downloads packages, and unpacks the files for whose path `wanted` returns true into the folder `root`.
    ///
    /// # Errors
    /// One line if apt-get is missing or fails, or if a package cannot be unpacked.
    pub fn unpack(&self, packages: &[&str], wanted: impl Fn(&Path) -> bool) -> anyhow::Result<()> {
        for path in self.download(packages)? {
            deb::unpack(&path, &self.work.join("root"), &wanted)?;
            fs::remove_file(&path)?;
        }
        Ok(())
    }

    /// Downloads a package, and copies its first file whose name begins with `name` to `place`.
    ///
    /// # Errors
    /// One line if apt-get is missing or fails, or if the package does not contain such a file.
    pub fn unpack_one(&self, package: &str, name: &str, place: &Path) -> anyhow::Result<()> {
        let is_named = |path: &Path| {
            let file = path.file_name().and_then(OsStr::to_str);
            file.is_some_and(|file| file.starts_with(name))
        };
        for path in self.download(&[package])? {
            let unpacked = deb::unpack_one(&path, is_named, place);
            unpacked.with_context(|| format!("{package} has no file {name}*"))?;
            fs::remove_file(&path)?;
        }
        Ok(())
    }

    /// Downloads packages, and returns their paths.
    fn download(&self, packages: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
        self.apt("apt-get", &self.words("download", packages))?;
        let entries = fs::read_dir(self.work.join("archives"))?;
        let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut paths = paths.map_err(|error: std::io::Error| error)?;
        paths.retain(|path| path.extension().is_some_and(|one| one == "deb"));
        ensure!(
            paths.len() == packages.len(),
            "{} gave {} of {} packages",
            self.suite,
            paths.len(),
            packages.len()
        );
        Ok(paths)
    }

    /// Returns the arguments for an action on packages of the suite.
    fn words(&self, action: &str, packages: &[&str]) -> Vec<String> {
        let names = packages.iter();
        let names = names.map(|package| format!("{package}/{}", self.suite));
        [action.to_owned()].into_iter().chain(names).collect()
    }

    /// Runs one of apt's programs, and returns its standard output. The program keeps all of its state in the folder
    /// `work`.
    fn apt(&self, program: &str, arguments: &[String]) -> anyhow::Result<String> {
        let work = self.work;
        let mut command = Command::new(program);
        command.current_dir(work.join("archives")).arg("-qq");
        for (setting, value) in [
            ("Dir::Etc::sourcelist", work.join("sources.list")),
            ("Dir::Etc::sourceparts", PathBuf::from("/dev/null")),
            ("Dir::State::lists", work.join("lists")),
            // The list of packages that are installed on this machine is not used, because they are not the suite's.
            ("Dir::State::status", PathBuf::from("/dev/null")),
            ("Dir::Cache", work.join("archives")),
            ("Dir::Cache::archives", work.join("archives")),
            ("APT::Sandbox::User", PathBuf::from("root")),
        ] {
            command
                .arg("-o")
                .arg(format!("{setting}={}", value.display()));
        }
        finish(command.args(arguments))
    }
}

/// Returns which of these packages are not installed on this machine; `None` if dpkg-query is missing.
pub fn not_installed<'a>(packages: &[&'a str]) -> Option<Vec<&'a str>> {
    let mut missing = Vec::new();
    for package in packages {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f", "${db:Status-Status}", package]);
        // dpkg-query fails for a package that was never installed.
        if bounded::output(&mut query, PATIENCE).ok()?.stdout != b"installed" {
            missing.push(*package);
        }
    }
    Some(missing)
}

/// Returns the mirror of Debian's archive that this machine uses for a release.
///
/// # Errors
/// One line if apt-get is missing or fails, or if no such mirror is configured.
pub fn mirror_of(release: &str) -> anyhow::Result<String> {
    let mirror = choose_mirror(&targets()?, release).map(str::to_owned);
    mirror.with_context(|| format!("apt knows no mirror of Debian {release} (apt-get update?)"))
}

/// Returns the mirror of Debian's archive that this machine uses for any release.
///
/// # Errors
/// One line if apt-get is missing or fails, or if no such mirror is configured.
pub fn mirror() -> anyhow::Result<String> {
    let mirror = choose_any_mirror(&targets()?).map(str::to_owned);
    mirror.context("apt knows no mirror of Debian (apt-get update?)")
}

/// Returns the mirror of Debian's archive that this machine uses, if apt can use it, which also requires the archive's
/// keys.
///
/// # Errors
/// One line with what is missing, and what installs it.
pub fn usable_mirror() -> anyhow::Result<String> {
    let mirror = mirror()?;
    ensure!(
        Path::new(KEYRING).exists(),
        "{KEYRING} is missing (apt install debian-archive-keyring)"
    );
    Ok(mirror)
}

/// Returns apt's configured sources, one per line, as `label|codename|address`.
fn targets() -> anyhow::Result<String> {
    finish(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(LABEL)|$(CODENAME)|$(REPO_URI)",
        "Identifier: Packages",
    ]))
}

fn choose_mirror<'a>(listing: &'a str, release: &str) -> Option<&'a str> {
    let prefix = format!("Debian|{release}|");
    listing.lines().find_map(|line| line.strip_prefix(&prefix))
}

fn choose_any_mirror(listing: &str) -> Option<&str> {
    let lines = listing.lines();
    let mut found = lines.filter_map(|line| line.strip_prefix("Debian|")?.split_once('|'));
    found.next().map(|(_, address)| address)
}

/// Runs a command until it exits, and returns its output. If it fails, the error contains the last line of its
/// messages.
///
/// # Errors
/// If the command cannot be started, or if it fails.
pub fn finish(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{name} cannot be started"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name} failed: {}",
        errors.lines().last().unwrap_or("it gave no reason")
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_says_so_in_one_line() {
        let error =
            finish(Command::new("sh").args(["-c", "echo first >&2; echo last >&2; exit 3"]));
        assert_eq!(error.unwrap_err().to_string(), "sh failed: last");
        let missing = finish(&mut Command::new("/no/such/command")).unwrap_err();
        assert!(
            missing.to_string().contains("cannot be started"),
            "{missing}"
        );
    }

    #[test]
    fn the_mirror_is_the_one_of_the_release_itself() {
        let listing = "Debian Backports|bookworm-backports|http://a/\nDebian|trixie|http://b/\n\
            Debian|bookworm|http://c/debian/\nDebian|bookworm|http://d/\n";
        assert_eq!(choose_mirror(listing, "bookworm"), Some("http://c/debian/"));
        assert_eq!(choose_any_mirror(listing), Some("http://b/"));
        let other = "Debian-Security|bookworm-security|http://e/";
        assert_eq!(choose_mirror(other, "bookworm"), None);
        assert_eq!(choose_any_mirror(other), None);
    }
}
