//! The scripts in `programs/workloads`.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// A script that runs a whole program, and what it needs.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    /// Its name, without the extension.
    pub name: String,
    /// What it does, in one line.
    pub title: String,
    /// The Debian packages that must be installed.
    pub packages: Vec<String>,
}

impl Script {
    /// Parses the first lines: a title, and the packages.
    fn parse(name: &str, text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let title = lines.next().and_then(|line| line.strip_prefix("# "));
        let packages = lines
            .next()
            .and_then(|line| line.strip_prefix("# package: "));
        Ok(Self {
            name: name.to_owned(),
            title: title.context("the first line is not a title")?.to_owned(),
            packages: packages
                .context("the second line does not name packages")?
                .split_ascii_whitespace()
                .map(str::to_owned)
                .collect(),
        })
    }

    /// Returns the packages with their versions, or the first one that is not installed.
    pub fn versions(&self) -> Result<Vec<String>, String> {
        let version = |package: &String| {
            let mut query = Command::new("dpkg-query");
            query.args(["-W", "-f", "${db:Status-Status} ${Version}", package]);
            let output = query.output().map_err(|_| package.clone())?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let version = text.strip_prefix("installed ").ok_or(package.clone())?;
            Ok(format!("{package} {version}"))
        };
        self.packages.iter().map(version).collect()
    }
}

/// Reads all scripts, in the order of their names, or the named ones.
///
/// # Errors
/// A script that does not begin with its title and packages; an unknown name.
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
