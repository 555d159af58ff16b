//! The `memwright` command: runs an unmodified Linux program on the Memwright memory manager, inside QEMU, and prints an
//! account of its memory that repeats on every machine.
#![warn(clippy::print_stderr)]

mod account;
mod apt;
mod args;
mod bench;
mod bounded;
mod cache;
mod channel;
mod children;
mod compile;
mod doctor;
mod ending;
mod failure;
mod folder;
mod gdb;
mod guest;
mod host_file;
mod input;
mod kernel;
mod kernels;
mod lab;
mod manual;
mod output;
mod profile;
mod qemu;
mod report;
mod room;
mod rows;
mod run;
#[cfg(test)]
mod schema;
mod session;
mod sheet;
mod signals;
mod size;
mod symbolise;
mod table;
mod thp;
mod watch;
mod window;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Action, Cli};
use crate::ending::SIGPIPE;
use crate::failure::{BROKEN, Failure, SIGNAL_BASE, USAGE};
use crate::session::say;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let printed = error.print().and_then(|()| io::stdout().flush());
            // Help and version are no errors.
            return ExitCode::from(match (error.use_stderr(), printed) {
                (true, _) if is_run() => BROKEN,
                (true, _) => USAGE,
                (false, Ok(())) => 0,
                (false, Err(error)) => end(&output::failed(error).into(), is_run()),
            });
        }
    };
    let result = match &cli.action {
        Action::Run(args) => run::run(args),
        Action::Bench(args) => bench::bench(args),
        Action::Check(args) => lab::check::check(args),
        Action::Compare(args) => lab::compare::compare(args),
        Action::Doctor => doctor::doctor(),
        Action::Completions(args) => manual::completions(args.shell).map_err(Failure::from),
        Action::Manual(args) => manual::manual(&args.folder).map_err(Failure::Usage),
        Action::Kernels(args) => kernels::kernels(&args.action),
        Action::Launch(args) => Err(Failure::Broken(qemu::launch::become_program(args))),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let runs = matches!(cli.action, Action::Run(_) | Action::Launch(_));
            ExitCode::from(end(&failure, runs))
        }
    }
}

/// Says why the command failed, and returns its exit code. Where the reader of standard output is gone, it ends quietly.
fn end(failure: &Failure, is_run: bool) -> u8 {
    if failure.is_closed_output() {
        return SIGNAL_BASE + SIGPIPE;
    }
    say(&failure.to_string());
    if is_run {
        failure.exit_code_of_run()
    } else {
        failure.exit_code()
    }
}

/// Whether the command line, which did not parse, is one of `run`: its exit codes are PROGRAM's but for a few.
fn is_run() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "run")
}
