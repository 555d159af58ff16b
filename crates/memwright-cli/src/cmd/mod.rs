//! The subcommands, one module each.

pub mod args;
pub mod bench;
pub mod bisect;
pub mod check;
pub mod compare;
pub mod doctor;
mod front;
pub mod kernels;
pub mod manual;
mod plan_file;
pub mod prebuild;
pub mod report;
mod rerun;
mod results;
pub mod run;

use std::ffi::OsString;
use std::io::{self, Write};
use std::panic;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;

use self::args::{Action, Cli, OnPanic};
use crate::host::output::{self, say};
use crate::model::failure::{BROKEN, Failure, SIGNAL_BASE, SIGPIPE, USAGE};
use crate::qemu::launch;

/// Parses the command line, executes the subcommand, and returns the exit code.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let words = match plan_file::expanded(words.clone()) {
        Ok(words) => words,
        Err(error) => {
            say(&format!("{error:#}"));
            return ExitCode::from(Codes::of_words(&words).usage());
        }
    };
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => {
            let printed = error.print().and_then(|()| io::stdout().flush());
            // Clap also returns help and version as errors, but they are not failures.
            let failure = match (error.use_stderr(), printed) {
                (true, _) => return ExitCode::from(Codes::of_words(&words).usage()),
                (false, Ok(())) => return ExitCode::SUCCESS,
                (false, Err(error)) => output::failed(error).into(),
            };
            return ExitCode::from(end(&failure, Codes::of_words(&words)));
        }
    };
    let codes = Codes::of(&cli.action);
    let result = match codes {
        // A panic of this command would exit with code 101, which `git bisect run` interprets as a bad commit.
        Codes::Bisect(_) => panic::catch_unwind(panic::AssertUnwindSafe(|| act(&cli.action)))
            .unwrap_or_else(|_| Err(Failure::Broken(anyhow!("memwright panicked")))),
        Codes::Run | Codes::Others => act(&cli.action),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => ExitCode::from(end(&failure, codes)),
    }
}

fn act(action: &Action) -> Result<u8, Failure> {
    match action {
        Action::Run(args) => run::run(args),
        Action::Bench(args) => bench::bench(args),
        Action::Check(args) => check::check(args),
        Action::Compare(args) => compare::compare(args),
        Action::Report(args) => report::report(args),
        Action::Doctor => doctor::doctor(),
        Action::Completions(args) => manual::completions(args.shell).map_err(Failure::from),
        Action::Manual(args) => manual::manual(&args.folder).map_err(Failure::Usage),
        Action::Prebuild(args) => prebuild::prebuild(&args.folder).map_err(Failure::Environment),
        Action::Kernels(args) => kernels::kernels(&args.action),
        Action::Launch(args) => Err(Failure::Broken(launch::become_program(args))),
    }
}

/// The set of exit codes that a command uses for its failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codes {
    /// The exit codes with which `run` reports its own failures.
    Run,
    /// The exit codes that `git bisect run` interprets.
    Bisect(OnPanic),
    /// The exit codes of all other commands.
    Others,
}

impl Codes {
    fn of(action: &Action) -> Self {
        match action {
            Action::Run(_) | Action::Launch(_) => Self::Run,
            Action::Check(args) if args.bisect => Self::Bisect(args.panic),
            Action::Bench(_)
            | Action::Check(_)
            | Action::Compare(_)
            | Action::Report(_)
            | Action::Doctor
            | Action::Completions(_)
            | Action::Manual(_)
            | Action::Prebuild(_)
            | Action::Kernels(_) => Self::Others,
        }
    }

    /// Returns which exit codes apply to a command line that does not parse.
    fn of_words(words: &[OsString]) -> Self {
        if words.get(1).is_some_and(|word| word == "run") {
            Self::Run
        } else if bisect::is_asked_for(words) {
            Self::Bisect(OnPanic::Skip)
        } else {
            Self::Others
        }
    }

    fn usage(self) -> u8 {
        match self {
            Self::Run => BROKEN,
            Self::Bisect(_) => bisect::USAGE,
            Self::Others => USAGE,
        }
    }
}

/// Prints why the command failed, and returns its exit code. Prints nothing if the process that reads standard output
/// has closed it.
fn end(failure: &Failure, codes: Codes) -> u8 {
    if failure.is_closed_output() {
        return SIGNAL_BASE + SIGPIPE;
    }
    say(&failure.to_string());
    match codes {
        Codes::Run => failure.exit_code_of_run(),
        Codes::Bisect(panic) => bisect::failure_code(failure, panic),
        Codes::Others => failure.exit_code(),
    }
}
