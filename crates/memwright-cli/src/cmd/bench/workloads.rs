//! The workloads: scripts that run complete programs of Debian's packages, and the scripts' data.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, anyhow};

use crate::cmd::bench::compile;
use crate::host::apt;
use crate::host::folder::{PrivateFolder, private_folder};
use crate::host::output::say;
use crate::model::failure::Failure;
use crate::model::plan::Setup;
use crate::model::size::MemorySize;

/// The folder of a workload in its guest. The scripts expect the program that executes marks in this folder.
const PLACE: &str = "/workload";

/// The folder in which pip installs packages for Debian's Python.
const PYTHON: &str = "/usr/local/lib";

/// A script that runs a complete program.
#[derive(Debug)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// The script for `sh`: its first line is the title, and its second line lists packages.
    script: &'static str,
}

/// Expands to a list of workloads with the given names. The script of each is the file with its name.
macro_rules! workloads {
    ($($name:literal,)*) => {
        &[$(Workload {
            name: $name,
            script: include_str!(concat!("../../../../../programs/workloads/", $name, ".sh")),
        },)*]
    };
}

/// Every workload, sorted by name.
pub const WORKLOADS: &[Workload] = workloads![
    "cpython-fork",
    "cpython-mmap",
    "cpython-os",
    "cpython-signal",
    "cpython-socket",
    "cpython-subprocess",
    "cpython-threading",
    "duckdb",
    "ffmpeg",
    "gcc-build",
    "gdb",
    "git-gc",
    "go-gc",
    "java-g1",
    "java-zgc",
    "jemalloc",
    "larson-jemalloc",
    "larson-mimalloc",
    "lmdb",
    "lua",
    "mariadb",
    "memcached",
    "mimalloc",
    "nginx",
    "node-workers",
    "numpy",
    "perl-text",
    "php",
    "postgres-pgbench",
    "python-fork",
    "python-objects",
    "redis-bgsave",
    "redis-snapshot",
    "ruby",
    "sqlite-wal",
    "strace",
    "stress-ng-vm",
    "tcmalloc",
    "valgrind",
];

/// The names and contents of files that the scripts read.
const DATA: &[(&str, &str)] = &[
    (
        "data/Fill.java",
        include_str!("../../../../../programs/workloads/data/Fill.java"),
    ),
    (
        "data/allocate.pl",
        include_str!("../../../../../programs/workloads/data/allocate.pl"),
    ),
    (
        "data/cpython.py",
        include_str!("../../../../../programs/workloads/data/cpython.py"),
    ),
    (
        "data/larson.c",
        include_str!("../../../../../programs/workloads/data/larson.c"),
    ),
];

impl Workload {
    /// Returns the title of the workload: what it does, in one line.
    pub fn title(&self) -> &'static str {
        self.line("# ")
    }

    /// Returns the Debian packages that the workload requires.
    pub fn packages(&self) -> Vec<&'static str> {
        self.line("# package: ").split_ascii_whitespace().collect()
    }

    /// Returns the packages of the Python Package Index that the workload requires for Debian's Python, each as
    /// `name==version`.
    pub fn python_packages(&self) -> Vec<&'static str> {
        self.line("# pypi: ").split_ascii_whitespace().collect()
    }

    /// Returns the rest of the first line of the script that begins with `start`.
    fn line(&self, start: &str) -> &'static str {
        let mut lines = self.script.lines();
        let rest = lines.find_map(|line| line.strip_prefix(start));
        rest.unwrap_or_default()
    }

    /// Checks that the workload's packages are installed on this machine, whose files the guest uses. If dpkg is
    /// missing, prints that this was not checked.
    ///
    /// # Errors
    /// One line with the missing packages and the command that installs them.
    pub fn check_packages(&self) -> Result<(), Failure> {
        self.check_debian_packages()?;
        let mut needed = self.python_packages();
        needed.retain(|package| !is_in_python(Path::new(PYTHON), package));
        if needed.is_empty() {
            return Ok(());
        }
        Err(Failure::Environment(anyhow!(
            "{} needs {} in Debian's Python: /usr/bin/python3 -m pip install --break-system-packages --no-deps {}",
            self.name,
            needed.join(" and "),
            needed.join(" ")
        )))
    }

    /// Checks that Debian's packages are installed.
    fn check_debian_packages(&self) -> Result<(), Failure> {
        let packages = self.packages();
        let Some(missing) = apt::not_installed(&packages) else {
            let all = packages.join(", ");
            say(&format!(
                "{}: without dpkg-query, it is not known whether its packages are installed: {all}",
                self.name
            ));
            return Ok(());
        };
        let (noun, verb) = match missing.as_slice() {
            [] => return Ok(()),
            [_] => ("package", "is"),
            [..] => ("packages", "are"),
        };
        Err(Failure::Environment(anyhow!(
            "{} needs the {noun} {}, which {verb} not installed: apt-get install {}",
            self.name,
            missing.join(" and "),
            missing.join(" ")
        )))
    }

    /// Writes the workload's script, its data and the program that executes marks into a temporary folder.
    ///
    /// # Errors
    /// If there is no C compiler, or I/O errors of writing.
    pub fn pack(&self) -> Result<Packed, Failure> {
        let mark = compile::mark().obtain().map_err(Failure::Environment)?;
        let folder = private_folder().context("cannot make a temporary folder")?;
        let place = folder.path().join("workload");
        self.write(&place, &mark)
            .with_context(|| format!("cannot write {}", place.display()))?;
        let mut file = place.into_os_string();
        file.push(":");
        file.push(PLACE);
        Ok(Packed {
            file,
            _folder: folder,
        })
    }

    /// Writes the files with permissions that do not depend on the user's umask.
    fn write(&self, place: &Path, mark: &Path) -> std::io::Result<()> {
        let name = format!("{}.sh", self.name);
        let data = DATA.iter().copied();
        let used = data.filter(|(name, _)| self.script.contains(name));
        for (name, text) in [(&*name, self.script)].into_iter().chain(used) {
            let path = place.join(name);
            for folder in path.parent().into_iter().chain([place]) {
                fs::create_dir_all(folder)?;
                fs::set_permissions(folder, Permissions::from_mode(0o755))?;
            }
            fs::write(&path, text)?;
            fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        }
        let program = place.join("mark");
        fs::copy(mark, &program)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))
    }
}

/// Returns whether a package of the Python Package Index, given as `name==version`, is installed for one of the
/// versions of Python in `folder`.
fn is_in_python(folder: &Path, package: &str) -> bool {
    let about = format!("{}.dist-info", package.replace("==", "-"));
    let versions = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut packages = versions.map(|version| version.path().join("dist-packages"));
    packages.any(|packages| packages.join(&about).is_dir())
}

/// A workload's files in a temporary folder of the host. Dropping this value removes the folder.
#[derive(Debug)]
pub struct Packed {
    // The value of `--file` that adds the files to a guest.
    file: OsString,
    _folder: PrivateFolder,
}

impl Packed {
    /// Returns the guest that runs a command with these files, with the root of this machine as its tree.
    pub fn guest(&self, command: Vec<OsString>) -> Setup {
        Setup {
            memory: MemorySize::of_workload(),
            files: vec![self.file.clone()],
            root: Some("/".into()),
            fresh: true,
            ..Setup::of(command)
        }
    }
}

/// Returns the command that runs a workload. A sweep replaces `placeholder` by the workload's name.
pub fn command(placeholder: &str) -> Vec<OsString> {
    vec!["/bin/sh".into(), format!("{PLACE}/{placeholder}.sh").into()]
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/workloads")
    }

    /// Returns the names of the files in a folder, sorted.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
        let mut names: Vec<String> = files
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_package_of_python_is_found_in_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("python3.11/dist-packages");
        fs::create_dir_all(packages.join("one-1.2.dist-info")).unwrap();
        fs::create_dir_all(folder.path().join("python3.13")).unwrap();
        for (package, expected) in [("one==1.2", true), ("one==1.3", false), ("on==1.2", false)] {
            assert_eq!(is_in_python(folder.path(), package), expected, "{package}");
        }
        assert!(!is_in_python(&folder.path().join("absent"), "one==1.2"));
    }

    #[test]
    fn every_script_and_its_data_is_carried() {
        let scripts = names(&folder());
        let scripts = scripts.iter().filter_map(|name| name.strip_suffix(".sh"));
        let carried = WORKLOADS.iter().map(|one| one.name);
        assert_eq!(carried.collect::<Vec<_>>(), scripts.collect::<Vec<_>>());
        let data = DATA
            .iter()
            .filter_map(|(name, _)| name.strip_prefix("data/"));
        assert_eq!(data.collect::<Vec<_>>(), names(&folder().join("data")));
        for one in WORKLOADS {
            assert!(!one.title().is_empty(), "{}", one.name);
            assert!(!one.packages().is_empty(), "{}", one.name);
            let uses = one.script.matches("/data/").count();
            let carried = DATA.iter().filter(|(name, _)| one.script.contains(name));
            assert_eq!(carried.count(), uses, "{}", one.name);
        }
    }

    #[test]
    fn every_region_that_begins_ends() {
        for one in WORKLOADS {
            let count = |what: &str| one.script.matches(what).count();
            assert_eq!(count(" begin 1"), count(" end 1"), "{}", one.name);
            let finds = one.script.contains(&format!("mark={PLACE}/mark;"));
            assert_eq!(finds, count(" begin 1") == 1, "{}", one.name);
        }
    }

    #[test]
    fn what_a_guest_gets_is_readable_to_everyone() {
        let host = tempfile::tempdir().unwrap();
        let (mark, place) = (host.path().join("built"), host.path().join("place"));
        fs::write(&mark, "x").unwrap();
        let larson = WORKLOADS.iter().find(|one| one.name == "larson-jemalloc");
        larson.unwrap().write(&place, &mark).unwrap();
        assert_eq!(names(&place), ["larson-jemalloc.sh", "mark"]);
        assert_eq!(names(&place.join("data")), ["larson.c"]);
        for (path, mode) in [
            ("", 0o755),
            ("data", 0o755),
            ("mark", 0o755),
            ("data/larson.c", 0o644),
        ] {
            let about = fs::metadata(place.join(path)).unwrap();
            assert_eq!(about.permissions().mode() & 0o777, mode, "{path}");
        }
    }
}
