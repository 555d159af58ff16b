//! The failures of a command, and the exit code of each.

use std::fmt;

use memwright_linux_abi::channel::Outcome;

/// The exit code when `--timeout` expires.
pub const TIMEOUT: u8 = 124;
/// The exit code of `run` when Memwright itself fails.
pub const BROKEN: u8 = 125;
/// The exit code when PROGRAM cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The exit code when PROGRAM, or a file without which it cannot start, does not exist.
pub const NOT_FOUND: u8 = 127;
/// The number that is added to a signal's number to form the exit code of a program that the signal killed, as in
/// shells.
pub const SIGNAL_BASE: u8 = 128;

/// Returns the exit code of a command that was ended by a signal.
pub fn signal_code(signal: i32) -> u8 {
    SIGNAL_BASE.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// The number of SIGPIPE. If the process that reads this command's output has closed the pipe, the command exits like a
/// program that this signal killed.
pub const SIGPIPE: u8 = 13;
/// ENOENT: the guest did not find the program or its interpreter.
const NO_ENTRY: i32 = 2;

/// Returns the exit code for PROGRAM's outcome.
pub fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        // An exit status has eight bits, as for wait(2).
        Outcome::Exited(code) => (code & 0xff) as u8,
        Outcome::Killed(signal) => signal_code(signal),
        Outcome::NotStarted(NO_ENTRY) => NOT_FOUND,
        Outcome::NotStarted(_) => NOT_EXECUTABLE,
    }
}

/// The exit code of every command but `run` when it finds a difference.
pub const DIFFERENCE: u8 = 1;
/// The exit code of every command but `run` for a usage error.
pub const USAGE: u8 = 2;
/// The exit code of every command but `run` when QEMU, a compiler or another tool is missing.
pub const ENVIRONMENT: u8 = 3;
/// The exit code of every command but `run` when no verdict is possible, for example because the counts do not repeat.
pub const SKIPPED: u8 = 4;
/// The exit code of every command but `run` when a guest crashed, or gave no result in time.
pub const GUEST: u8 = 5;
/// The exit code of every command but `run` when the program ended differently, or its output differs.
pub const OTHER_PROGRAM: u8 = 6;
/// The exit code of every command but `run` when the program's memory was mapped differently at a mark, or its marks
/// differ.
pub const OTHER_STATE: u8 = 7;
/// The exit code of every command but `run` for any other failure.
pub const INTERNAL: u8 = 70;

/// The error if the process that reads standard output has closed it. The command then ends like a program that gets
/// SIGPIPE.
#[derive(Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("standard output is closed")
    }
}

impl std::error::Error for Closed {}

/// Why a command failed. Each failure displays as one line.
#[derive(Debug)]
pub enum Failure {
    /// PROGRAM, its interpreter or a library is missing.
    NotFound(String),
    /// PROGRAM exists, but cannot be executed.
    NotExecutable(String),
    /// The options are invalid or contradict each other.
    Usage(anyhow::Error),
    /// A kernel image is absent, or cannot boot.
    NoImage(anyhow::Error),
    /// QEMU, a compiler or another tool is missing on this machine.
    Environment(anyhow::Error),
    /// A guest gave no result.
    Guest(anyhow::Error),
    /// The command ended its guests. The values are the exit code of `run`, and the reason.
    Ended(u8, String),
    /// No verdict is possible, for example because the counts do not repeat. The value is the reason.
    Skipped(String),
    /// Any other failure, such as an I/O error or an error of this command.
    Broken(anyhow::Error),
}

impl Failure {
    /// Returns whether the failure is that the process which reads standard output has closed it. The command then ends
    /// without a message.
    pub fn is_closed_output(&self) -> bool {
        match self {
            Self::Usage(error)
            | Self::NoImage(error)
            | Self::Environment(error)
            | Self::Guest(error)
            | Self::Broken(error) => error.is::<Closed>(),
            Self::NotFound(_) | Self::NotExecutable(_) | Self::Ended(..) | Self::Skipped(_) => {
                false
            }
        }
    }

    /// Returns the exit code of `memwright run` for this failure. All other exit codes of `memwright run` are
    /// PROGRAM's.
    pub fn exit_code_of_run(&self) -> u8 {
        match self {
            Self::NotFound(_) => NOT_FOUND,
            Self::NotExecutable(_) => NOT_EXECUTABLE,
            Self::Ended(code, _) => *code,
            Self::Usage(_)
            | Self::NoImage(_)
            | Self::Environment(_)
            | Self::Guest(_)
            | Self::Skipped(_)
            | Self::Broken(_) => BROKEN,
        }
    }

    /// Returns the exit code of every command except `memwright run` for this failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) | Self::NotExecutable(_) | Self::Usage(_) | Self::NoImage(_) => USAGE,
            Self::Environment(_) => ENVIRONMENT,
            Self::Guest(_) | Self::Ended(TIMEOUT, _) => GUEST,
            Self::Ended(code, _) => *code,
            Self::Skipped(_) => SKIPPED,
            Self::Broken(_) => INTERNAL,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(line)
            | Self::NotExecutable(line)
            | Self::Ended(_, line)
            | Self::Skipped(line) => formatter.write_str(line),
            Self::Usage(error)
            | Self::NoImage(error)
            | Self::Environment(error)
            | Self::Guest(error)
            | Self::Broken(error) => write!(formatter, "{error:#}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_commands_are_documented() {
        let page = include_str!("../../../../docs/command.md");
        let (_, page) = page.split_once("### Exit codes of compare").unwrap();
        for code in [
            DIFFERENCE,
            USAGE,
            ENVIRONMENT,
            SKIPPED,
            GUEST,
            OTHER_PROGRAM,
            OTHER_STATE,
            INTERNAL,
        ] {
            assert!(page.contains(&format!("\n| {code} | ")), "{code}");
        }
    }

    #[test]
    fn each_failure_has_two_codes() {
        let error = || anyhow::anyhow!("x");
        for (failure, of_run, of_others) in [
            (Failure::NotFound(String::new()), 127, 2),
            (Failure::NotExecutable(String::new()), 126, 2),
            (Failure::Usage(error()), 125, 2),
            (Failure::NoImage(error()), 125, 2),
            (Failure::Environment(error()), 125, 3),
            (Failure::Skipped(String::new()), 125, 4),
            (Failure::Guest(error()), 125, 5),
            (Failure::Ended(TIMEOUT, String::new()), 124, 5),
            (Failure::Ended(130, String::new()), 130, 130),
            (Failure::Broken(error()), 125, 70),
        ] {
            assert_eq!(
                (failure.exit_code_of_run(), failure.exit_code()),
                (of_run, of_others),
                "{failure:?}"
            );
        }
    }

    #[test]
    fn exit_codes() {
        for (outcome, code) in [
            (Outcome::Exited(0), 0),
            (Outcome::Exited(255), 255),
            (Outcome::Exited(256), 0),
            (Outcome::Exited(-1), 255),
            (Outcome::Killed(11), 139),
            (Outcome::Killed(64), 192),
            (Outcome::NotStarted(2), 127),
            (Outcome::NotStarted(8), 126),
            (Outcome::NotStarted(13), 126),
        ] {
            assert_eq!(exit_code(outcome), code, "{outcome:?}");
        }
    }
}
