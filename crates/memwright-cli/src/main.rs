//! The `memwright` command: runs an unmodified Linux program on the Memwright memory manager, inside QEMU, and prints an
//! account of its memory that repeats on every machine.
#![warn(clippy::print_stderr)]

mod account;
mod args;
mod bench;
mod cache;
mod channel;
mod compile;
mod ending;
mod failure;
mod folder;
mod gdb;
mod guest;
mod input;
mod kernel;
mod lab;
mod qemu;
mod report;
mod rows;
mod run;
mod session;
mod size;
mod symbolise;
mod table;
mod watch;
mod window;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Action, Cli};
use crate::failure::{BROKEN, Failure};
use crate::session::say;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors. A closed output is nobody's concern any more.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { BROKEN } else { 0 });
        }
    };
    let result = match &cli.action {
        Action::Run(args) => run::run(args),
        Action::Bench(args) => bench::bench(args),
        Action::Launch(args) => Err(Failure::Broken(qemu::launch::become_program(args))),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            say(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}
