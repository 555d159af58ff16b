//! Determines why a guest gave no result, from the last output of the guest and of QEMU.

use std::fmt;
use std::fs;
use std::path::Path;

/// Why a guest gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoResult {
    /// The kernel panicked, with this message.
    Panicked(String),
    /// QEMU failed before the kernel printed anything. The value is QEMU's message.
    QemuFailed(String),
    /// The guest ended without a panic. The value is the last line of its output.
    Ended(String),
    /// Neither QEMU nor the kernel printed anything.
    Silent,
}

impl NoResult {
    /// Determines the reason from the files with the guest's serial output and QEMU's standard error. `signal` is the
    /// signal that killed QEMU, if any.
    pub fn read(serial: &Path, errors: &Path, signal: Option<i32>) -> Self {
        let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Self::of(&read(serial), &read(errors), signal)
    }

    fn of(serial: &str, errors: &str, signal: Option<i32>) -> Self {
        let last = |text: &str| {
            let line = text.lines().rfind(|line| !line.trim().is_empty());
            line.map(|line| line.trim().to_owned())
        };
        let panic = serial
            .lines()
            .find_map(|line| line.find("Kernel panic").map(|at| line[at..].trim()));
        match (panic, signal, last(serial), last(errors)) {
            (Some(panic), ..) => Self::Panicked(panic.to_owned()),
            (None, Some(signal), ..) => Self::QemuFailed(format!("killed by signal {signal}")),
            // If the kernel printed anything, QEMU had started, so QEMU's message is only a warning.
            (None, None, Some(line), _) => Self::Ended(line),
            (None, None, None, Some(line)) => Self::QemuFailed(line),
            (None, None, None, None) => Self::Silent,
        }
    }
}

impl fmt::Display for NoResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(panic) => write!(formatter, "the guest's kernel panicked: {panic}"),
            Self::QemuFailed(line) => write!(formatter, "QEMU failed: {line}"),
            Self::Ended(line) => write!(
                formatter,
                "the guest ended without a result; its last words: {line}"
            ),
            Self::Silent => formatter.write_str(
                "the guest ended without a result and without a word on its serial line",
            ),
        }
    }
}

impl std::error::Error for NoResult {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_without_a_result_is_one_line() {
        let panic = "[ 1.0] x\r\n[ 1.1] Kernel panic - not syncing: VFS\r\n[ 1.2] more\r\n";
        for (serial, errors, signal, expected) in [
            (
                panic,
                "qemu: noise",
                Some(6),
                "the guest's kernel panicked: Kernel panic - not syncing: VFS",
            ),
            (
                "",
                "qemu: no such file\n",
                None,
                "QEMU failed: qemu: no such file",
            ),
            ("a\n", "", Some(9), "QEMU failed: killed by signal 9"),
            (
                "a\nb\n\n",
                "qemu: warning\n",
                None,
                "the guest ended without a result; its last words: b",
            ),
            (
                "",
                "",
                None,
                "the guest ended without a result and without a word on its serial line",
            ),
        ] {
            assert_eq!(NoResult::of(serial, errors, signal).to_string(), expected);
        }
    }

    #[test]
    fn the_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (serial, errors) = (folder.path().join("s"), folder.path().join("e"));
        assert_eq!(NoResult::read(&serial, &errors, None), NoResult::Silent);
        fs::write(&serial, "hello\n").unwrap();
        assert_eq!(
            NoResult::read(&serial, &errors, None),
            NoResult::Ended("hello".to_owned())
        );
    }
}
