//! What can go wrong before and around a run, and the exit code of each.

use std::fmt;

/// Exit code when `--timeout` expired.
pub const TIMEOUT: u8 = 124;
/// Exit code when Memwright itself failed.
pub const BROKEN: u8 = 125;
/// Exit code when PROGRAM cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// Exit code when PROGRAM, or a file that it cannot start without, was not found.
pub const NOT_FOUND: u8 = 127;
/// Added to a signal's number.
pub const SIGNAL_BASE: u8 = 128;

/// A run that could not happen. Each displays as one line.
#[derive(Debug)]
pub enum Failure {
    /// PROGRAM, its interpreter or a library is missing.
    NotFound(String),
    /// PROGRAM exists and cannot be executed.
    NotExecutable(String),
    /// Anything else: usage, QEMU, files, the kernel.
    Broken(anyhow::Error),
}

impl Failure {
    /// The exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => NOT_FOUND,
            Self::NotExecutable(_) => NOT_EXECUTABLE,
            Self::Broken(_) => BROKEN,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(line) | Self::NotExecutable(line) => formatter.write_str(line),
            Self::Broken(error) => write!(formatter, "{error:#}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}
