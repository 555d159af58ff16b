//! Finds QEMU and checks that it is recent enough.

use std::ffi::OsString;
use std::fmt;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::backports;

/// The oldest version with the pinned machine type and AVX2 under TCG.
const OLDEST: Version = Version {
    major: 7,
    minor: 2,
    micro: 0,
};

/// A version of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    micro: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// The QEMU to use: `MEMWRIGHT_QEMU`, else the one in PATH. The word `backports` stands for a newer one in a private
/// cache.
///
/// # Errors
/// Those of fetching the one from backports.
pub fn program() -> anyhow::Result<OsString> {
    match std::env::var_os("MEMWRIGHT_QEMU").filter(|path| !path.is_empty()) {
        None => Ok("qemu-system-x86_64".into()),
        Some(word) if word == backports::NAME => Ok(backports::obtain()?.into()),
        Some(path) => Ok(path),
    }
}

/// Asks a QEMU for its version.
///
/// # Errors
/// One line when it is missing, does not answer as QEMU does, or is too old.
pub fn check(program: &OsString) -> anyhow::Result<Version> {
    let name = program.display();
    let output = match Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
    {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "QEMU is missing: {name} was not found (on Debian: apt install qemu-system-x86; MEMWRIGHT_QEMU names another)"
        ),
        Err(error) => return Err(error).with_context(|| format!("QEMU cannot be started: {name}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(version) = parse(&text) else {
        bail!(
            "{name} is no QEMU: --version printed {:?}",
            text.lines().next().unwrap_or_default()
        );
    };
    if version < OLDEST {
        bail!("QEMU is too old: {name} is version {version}, {OLDEST} or later is needed");
    }
    Ok(version)
}

/// Reads `QEMU emulator version 7.2.22 (...)`.
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
        assert!(parse("QEMU emulator version 6.2.0").unwrap() < OLDEST);
    }

    #[test]
    fn what_is_no_qemu_is_refused() {
        assert!(
            check(&"/no/such/qemu".into())
                .unwrap_err()
                .to_string()
                .contains("QEMU is missing")
        );
        assert!(
            check(&"/bin/true".into())
                .unwrap_err()
                .to_string()
                .contains("is no QEMU")
        );
    }
}
