//! The lab: any Linux kernel image, unmodified, with a program inside, counted from outside.

pub mod check;
pub mod compare;
mod counts;
pub mod document;
mod gates;
mod guest;
pub mod image;
mod interrupts;
mod laboratory;
mod log;
pub mod native;
pub mod output;
pub mod plugin;
mod runs;
#[cfg(test)]
mod schema;
pub mod state;
mod tables;

use std::{io, slice};

use anyhow::anyhow;
use memwright_linux::channel::Outcome;

use self::image::Image;
use self::laboratory::{Laboratory, Measured};
use crate::args::RunArgs;
use crate::ending::{self, JsonTarget};
use crate::failure::Failure;
use crate::session::{say, show};
use crate::{output as standard, sheet};

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
        standard::print(format!("{}\n", laboratory.line(&image)).as_bytes())?;
        return Ok(0);
    }
    let mut taken = laboratory.taken(slice::from_ref(&image));
    let json = args.json.as_deref();
    let json = json
        .map(|path| JsonTarget::open(path, &mut taken))
        .transpose()?;
    let measured = laboratory.measure(&image, &laboratory.runs()?)?;
    conclude(&measured, json.as_ref())
}

/// Prints what the program printed, then the account, and returns the exit code.
fn conclude(measured: &Measured, json: Option<&JsonTarget>) -> Result<u8, Failure> {
    let Measured { said, document } = measured;
    show(&said.errors);
    standard::print(&said.output)?;
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
