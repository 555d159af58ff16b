//! The `memwright` command: runs an unmodified Linux program on the Memwright memory manager, inside QEMU, and prints an
//! account of its memory that repeats on every machine.
#![warn(clippy::print_stderr)]

mod account;
mod apt;
mod args;
mod bench;
mod cache;
mod channel;
mod compile;
mod doctor;
mod ending;
mod failure;
mod folder;
mod gdb;
mod guest;
mod input;
mod kernel;
mod kernels;
mod lab;
mod manual;
mod qemu;
mod report;
mod rows;
mod run;
#[cfg(test)]
mod schema;
mod session;
mod sheet;
mod size;
mod symbolise;
mod table;
mod thp;
mod watch;
mod window;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Action, Cli};
use crate::failure::{BROKEN, Failure, USAGE};
use crate::session::say;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors. A closed output is nobody's concern any more.
            let _ = error.print();
            return ExitCode::from(match (error.use_stderr(), is_run()) {
                (false, _) => 0,
                (true, true) => BROKEN,
                (true, false) => USAGE,
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
            say(&failure.to_string());
            ExitCode::from(match cli.action {
                Action::Run(_) | Action::Launch(_) => failure.exit_code_of_run(),
                _ => failure.exit_code(),
            })
        }
    }
}

/// Whether the command line, which did not parse, is one of `run`: its exit codes are PROGRAM's but for a few.
fn is_run() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "run")
}
