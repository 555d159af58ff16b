//! Finds QEMU and checks that it is recent enough.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::host::bounded::{self, Unanswered};
use crate::host::host_file::{self, LARGEST_IMAGE};
use crate::model::hash::hexadecimal_hash;
use crate::model::machine::Machine;
use crate::qemu::backports;

/// The program that runs as QEMU unless another one is selected.
const USUAL: &str = "qemu-system-x86_64";

/// A version of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    micro: u32,
}

impl Version {
    /// Returns the version with these numbers.
    pub const fn new(major: u32, minor: u32, micro: u32) -> Self {
        Self {
            major,
            minor,
            micro,
        }
    }

    /// The oldest supported version: it has the versioned machine type, and AVX2 under TCG.
    pub const OLDEST: Self = Self {
        major: 7,
        minor: 2,
        micro: 0,
    };
    /// The oldest version that supports several CPUs under the instruction clock, or an x2APIC. In earlier versions,
    /// one of the CPUs can starve, and TCG has no x2APIC.
    pub const NEWER: Self = Self {
        major: 10,
        minor: 0,
        micro: 0,
    };
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// Returns the value of `MEMWRIGHT_QEMU`, or `None` if it is unset or empty.
fn chosen() -> Option<OsString> {
    std::env::var_os("MEMWRIGHT_QEMU").filter(|path| !path.is_empty())
}

/// Returns the QEMU to use: the one that `MEMWRIGHT_QEMU` names or, if the variable is not set, the one in PATH. The
/// QEMU from Debian's backports is used if the value is `backports`, or if the variable is not set and the machine
/// needs a newer QEMU than the one in PATH. It is downloaded if it is not in the cache.
///
/// # Errors
/// Errors of downloading the QEMU from backports.
pub fn program(machine: &Machine, limit: Duration) -> anyhow::Result<OsString> {
    match chosen() {
        Some(word) if word == backports::NAME => Ok(backports::obtain()?.into()),
        Some(path) => Ok(path),
        None => match (machine.needs_newer(), usual_is_older(machine, limit)) {
            (Some(what), Some(found)) => backports::obtain().map(OsString::from).with_context(|| {
                format!(
                    "{what} needs QEMU {} or later, {USUAL} is {found}, and a later one cannot be fetched \
                     (MEMWRIGHT_QEMU can name one)",
                    Version::NEWER
                )
            }),
            (Some(_) | None, _) => Ok(USUAL.into()),
        },
    }
}

/// Returns the QEMU that [`program`] would return, without downloading it.
///
/// # Errors
/// If no folder for a cache can be determined.
pub fn program_to_name(machine: &Machine, limit: Duration) -> anyhow::Result<OsString> {
    match chosen() {
        Some(path) if path != backports::NAME => Ok(path),
        None if usual_is_older(machine, limit).is_none() => Ok(USUAL.into()),
        Some(_) | None => Ok(backports::place()?.into()),
    }
}

/// Returns the QEMU for machines that do not need a newer version, and the version of this QEMU.
///
/// # Errors
/// One line if QEMU is missing or too old.
pub fn usual() -> anyhow::Result<(OsString, Version)> {
    let program = match chosen() {
        Some(word) if word == backports::NAME => backports::place()?.into(),
        Some(path) => path,
        None => USUAL.into(),
    };
    let version = check(&program, Version::OLDEST, "", bounded::PATIENCE)?;
    Ok((program, version))
}

/// Returns the version of the QEMU in PATH if the machine needs a newer one. Returns `None` if the machine does not
/// need a newer one, or if there is no usable QEMU in PATH.
fn usual_is_older(machine: &Machine, limit: Duration) -> Option<Version> {
    machine.needs_newer()?;
    check(&USUAL.into(), Version::OLDEST, "", limit)
        .ok()
        .filter(|version| *version < Version::NEWER)
}

/// Returns whether a QEMU was built with plugin support. A QEMU without it cannot log the output of plugins.
pub fn takes_plugins(program: &OsString) -> bool {
    let answer = bounded::output(
        Command::new(program).args(["-d", "help"]),
        bounded::PATIENCE,
    );
    answer.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().any(|line| line.starts_with("plugin "))
    })
}

/// Queries a QEMU's version, and checks that it supports this machine. The query takes at most `limit`, and never more
/// than [`bounded::PATIENCE`].
///
/// # Errors
/// One line if QEMU is missing, does not print a version, or is too old.
pub fn check_for(
    program: &OsString,
    machine: &Machine,
    limit: Duration,
) -> anyhow::Result<Version> {
    let (oldest, reason) = match machine.needs_newer() {
        Some(what) => (Version::NEWER, format!(" for {what}")),
        None => (Version::OLDEST, String::new()),
    };
    check(program, oldest, &reason, limit)
}

fn check(
    program: &OsString,
    oldest: Version,
    reason: &str,
    limit: Duration,
) -> anyhow::Result<Version> {
    let name = program.display();
    let limit = limit.min(bounded::PATIENCE);
    let output = match bounded::output(Command::new(program).arg("--version"), limit) {
        Ok(output) => output,
        Err(Unanswered::Failed(error)) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "QEMU is missing: {name} was not found (on Debian: apt install qemu-system-x86; MEMWRIGHT_QEMU names another)"
        ),
        Err(Unanswered::Failed(error)) => {
            return Err(error).with_context(|| format!("QEMU cannot be started: {name}"));
        }
        Err(unanswered @ (Unanswered::Late(_) | Unanswered::Endless)) => {
            bail!("{name} is not QEMU: {name} --version {unanswered}")
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(version) = parse(&text) else {
        let line: String = text
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(80)
            .collect();
        bail!("{name} is not QEMU: --version printed {line:?}");
    };
    if version < oldest {
        bail!("QEMU is too old: {name} is version {version}, {oldest} or later is needed{reason}");
    }
    Ok(version)
}

/// Returns the SHA-256 of a QEMU executable in hexadecimal. For the script that starts the QEMU from backports, it is
/// the hash of the emulator. Empty if the file cannot be read.
pub fn hash(program: &OsString) -> String {
    let path = match locate(program) {
        Some(path) if backports::place().is_ok_and(|place| place == path) => {
            backports::executable().unwrap_or(path)
        }
        Some(path) => path,
        None => return String::new(),
    };
    let bytes = host_file::read(&path, LARGEST_IMAGE);
    bytes.map_or_else(|_| String::new(), |bytes| hexadecimal_hash(&bytes))
}

/// Returns the path of a command: the name itself if it contains a slash, or else the first file of this name in PATH.
fn locate(program: &OsString) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Parses `QEMU emulator version 7.2.22 (...)`.
fn parse(text: &str) -> Option<Version> {
    let rest = text
        .lines()
        .next()?
        .strip_prefix("QEMU emulator version ")?;
    let end = rest
        .find(|letter: char| letter != '.' && !letter.is_ascii_digit())
        .unwrap_or(rest.len());
    let mut numbers = rest[..end].split('.').map(|number| number.parse().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    let micro = numbers.next().flatten().unwrap_or(0);
    Some(Version {
        major,
        minor,
        micro,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse() {
        for (text, expected) in [
            (
                "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright",
                Some((7, 2, 22)),
            ),
            ("QEMU emulator version 10.0.2", Some((10, 0, 2))),
            ("QEMU emulator version 9.1\n", Some((9, 1, 0))),
            ("QEMU emulator version 10.1.50-rc2", Some((10, 1, 50))),
            ("GNU coreutils 9.1", None),
            ("", None),
        ] {
            let expected = expected.map(|(major, minor, micro)| Version {
                major,
                minor,
                micro,
            });
            assert_eq!(parse(text), expected, "{text}");
        }
        assert!(parse("QEMU emulator version 6.2.0").unwrap() < Version::OLDEST);
        assert!(parse("QEMU emulator version 9.2.4").unwrap() < Version::NEWER);
        assert!(parse("QEMU emulator version 10.0.2").unwrap() >= Version::NEWER);
    }

    #[test]
    fn what_is_no_qemu_is_refused() {
        assert!(
            check(
                &"/no/such/qemu".into(),
                Version::OLDEST,
                "",
                bounded::PATIENCE
            )
            .unwrap_err()
            .to_string()
            .contains("QEMU is missing")
        );
        assert!(
            check(&"/bin/true".into(), Version::OLDEST, "", bounded::PATIENCE)
                .unwrap_err()
                .to_string()
                .contains("is not QEMU")
        );
    }
}
