//! The lab: any Linux kernel image, unmodified, with a program inside, counted from outside.

pub mod check;
pub mod compare;
mod counts;
pub mod document;
mod guest;
pub mod image;
mod laboratory;
mod log;
pub mod native;
pub mod output;
pub mod plugin;
mod runs;
#[cfg(test)]
mod schema;
mod tables;

use std::io;
use std::os::fd::AsFd;

use anyhow::anyhow;
use memwright_linux::channel::Outcome;

use self::image::Image;
use self::laboratory::{Laboratory, Measured};
use crate::args::RunArgs;
use crate::ending::{self, JsonTarget};
use crate::failure::{Failure, SIGNAL_BASE};
use crate::session::{say, show, write_fully};
use crate::sheet;

/// `memwright run --kernel IMAGE`: the account of a program on that kernel.
///
/// # Errors
/// Everything that keeps it from running; what becomes of the program is an exit code.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let [image] = args.kernel.as_slice() else {
        return Err(anyhow!("run takes one --kernel; memwright compare compares several").into());
    };
    let image = Image::open(image)?;
    let laboratory = Laboratory::open(args)?;
    if args.dry_run {
        println!("{}", laboratory.line(&image));
        return Ok(0);
    }
    let json = args.json.as_deref().map(JsonTarget::open).transpose()?;
    let measured = laboratory.measure(&image, &laboratory.runs()?)?;
    conclude(&measured, json.as_ref())
}

/// Prints what the program printed, then the account, and returns the exit code.
fn conclude(measured: &Measured, json: Option<&JsonTarget>) -> Result<u8, Failure> {
    let Measured { said, document } = measured;
    show(&said.errors);
    if write_fully(io::stdout().as_fd(), &said.output).is_err() {
        return Ok(SIGNAL_BASE + ending::SIGPIPE);
    }
    show(sheet::text(&output::account(document)).as_bytes());
    if let Outcome::NotStarted(number) = said.outcome {
        let error = io::Error::from_raw_os_error(number);
        say(&format!("{}: {error}", document.program.path));
    }
    if let Some(target) = json {
        target.write(document)?;
    }
    Ok(ending::exit_code(said.outcome))
}
