//! Reads the scripts in `programs/workloads`.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// The path of Debian's Python.
const PYTHON: &str = "/usr/bin/python3";

/// A script that runs a program, with the packages that it needs.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    /// The name of the file, without the extension.
    pub name: String,
    /// A description in one line.
    pub title: String,
    /// The Debian packages that must be installed.
    pub packages: Vec<String>,
    /// The packages of the Python Package Index that must be installed for Debian's Python, each as `name==version`.
    pub python_packages: Vec<String>,
}

impl Script {
    /// Parses the first lines of a script: the title, the Debian packages, and the Python packages if there are any.
    fn parse(name: &str, text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let title = lines.next().and_then(|line| line.strip_prefix("# "));
        let packages = lines
            .next()
            .and_then(|line| line.strip_prefix("# package: "));
        let words = |line: &str| line.split_ascii_whitespace().map(str::to_owned).collect();
        let python = lines.next().and_then(|line| line.strip_prefix("# pypi: "));
        Ok(Self {
            name: name.to_owned(),
            title: title.context("the first line is not a title")?.to_owned(),
            packages: packages
                .map(words)
                .context("the second line does not name packages")?,
            python_packages: python.map(words).unwrap_or_default(),
        })
    }

    /// Returns each package with its version. The error is the name of the first package that is not installed.
    pub fn versions(&self) -> Result<Vec<String>, String> {
        let version = |package: &String| {
            let mut query = Command::new("dpkg-query");
            query.args(["-W", "-f", "${db:Status-Status} ${Version}", package]);
            let output = query.output().map_err(|_| package.clone())?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text.strip_prefix("installed ").ok_or(package.clone())?;
            Ok(format!("{package} {version}"))
        };
        let python_version = |package: &String| {
            let (name, version) = package.split_once("==").ok_or(package.clone())?;
            let mut query = Command::new(PYTHON);
            query.args(["-m", "pip", "show", name]);
            let output = query.output().map_err(|_| package.clone())?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_installed = text
                .lines()
                .any(|line| line.strip_prefix("Version: ") == Some(version));
            is_installed
                .then(|| format!("{name} {version} (PyPI)"))
                .ok_or(package.clone())
        };
        let debian = self.packages.iter().map(version);
        debian
            .chain(self.python_packages.iter().map(python_version))
            .collect()
    }

    /// Installs the Python packages.
    ///
    /// # Errors
    /// If pip fails.
    pub fn install_python_packages(&self) -> Result<()> {
        if self.python_packages.is_empty() {
            return Ok(());
        }
        let options = [
            "-m",
            "pip",
            "install",
            "--break-system-packages",
            "--no-deps",
        ];
        shell::run(
            Command::new(PYTHON)
                .args(options)
                .args(&self.python_packages),
        )
    }
}

/// Reads all scripts, or the named ones, in the order of their names.
///
/// # Errors
/// If a script does not begin with its title and packages, or if a name is unknown.
pub fn read(names: &[&str]) -> Result<Vec<Script>> {
    let folder = shell::root().join("programs/workloads");
    let mut scripts = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension() != Some("sh".as_ref()) {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let script = Script::parse(&name, &text);
        scripts.push(script.with_context(|| path.display().to_string())?);
    }
    scripts.sort_by(|one, other| one.name.cmp(&other.name));
    for name in names {
        let known = scripts.iter().any(|script| script.name == *name);
        ensure!(known, "there is no script programs/workloads/{name}.sh");
    }
    scripts.retain(|script| names.is_empty() || names.contains(&&*script.name));
    Ok(scripts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_packages() {
        let script = Script::parse("x", "# A title\n# package: one two\ntrue\n").unwrap();
        assert_eq!(script.title, "A title");
        assert_eq!(script.packages, ["one", "two"]);
        assert_eq!(script.python_packages, [""; 0]);
        let script = Script::parse("x", "# A title\n# package: one\n# pypi: two==3\n").unwrap();
        assert_eq!(script.python_packages, ["two==3"]);
        for wrong in ["", "A title\n", "# A title\ntrue\n"] {
            assert!(Script::parse("x", wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_script_can_be_read() {
        assert!(read(&[]).unwrap().len() >= 20);
        assert!(read(&["no-such-script"]).is_err());
    }
}
