//! The lab: any Linux kernel image, unmodified, with a program inside, counted from outside.

pub mod bisect;
pub mod check;
pub mod column;
pub mod compare;
mod comparison;
mod counting;
mod counts;
pub mod document;
mod gates;
mod guest;
mod identity;
pub mod image;
mod interrupts;
mod kernel_symbols;
mod laboratory;
pub mod limit;
mod log;
mod names;
pub mod native;
mod no_result;
mod own_guest;
mod passes;
pub mod plugin;
pub mod region_names;
pub mod report;
mod rerun;
mod runs;
mod said;
mod saved;
#[cfg(test)]
pub mod schema;
mod side_by_side;
pub mod state;
mod tables;
mod verdict;
mod wires;

use std::{io, slice};

use anyhow::anyhow;
use memwright_linux::channel::Outcome;

use self::column::Column;
use self::laboratory::{Input, Laboratory, Measured};
use crate::args::RunArgs;
use crate::ending;
use crate::failure::Failure;
use crate::outputs::Outputs;
use crate::profile::table::{self, Order};
use crate::session::{say, show};
use crate::{output as standard, profile, sheet};

/// `memwright run --kernel IMAGE`: the account of a program on that kernel.
///
/// # Errors
/// Everything that keeps it from running; what becomes of the program is an exit code.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let [image] = args.kernel.as_slice() else {
        return Err(anyhow!("run takes one --kernel; memwright compare compares several").into());
    };
    let column = Column::open(image)?;
    let args = &column.args(args).map_err(Failure::Usage)?;
    let image = column.image;
    let laboratory = Laboratory::open(args, &Input::default(), image.system)?;
    if args.dry_run {
        standard::print(format!("{}\n", laboratory.line(&image)).as_bytes())?;
        return Ok(0);
    }
    let mut taken = laboratory.taken(&image);
    let outputs = Outputs::open(args.json.as_deref(), &args.formats, &mut taken)?;
    let profiles = profile::Outputs::open(&args.profiles, &mut taken)?;
    let measured = laboratory.measure(&image, &laboratory.runs()?)?;
    let code = conclude(&measured, Order::of(args), &outputs)?;
    if let Some(profile) = &measured.document.functions {
        let command = measured.document.arguments.join(" ");
        profiles.write(profile, &image.name, &command)?;
    }
    Ok(code)
}

/// Prints what the program printed, then the account, and returns the exit code.
fn conclude(measured: &Measured, order: Order, outputs: &Outputs) -> Result<u8, Failure> {
    let Measured { said, document, .. } = measured;
    show(&said.errors);
    standard::print(&said.output)?;
    let sheet = side_by_side::account(document);
    show(sheet::text(&sheet, true).as_bytes());
    if let Some(profile) = &document.functions {
        show(table::text(profile, order).as_bytes());
    }
    if let Outcome::NotStarted(number) = said.outcome {
        let error = io::Error::from_raw_os_error(number);
        say(&format!("{}: {error}", document.program.path));
    }
    outputs.write("memwright run", slice::from_ref(&sheet), true, document)?;
    Ok(ending::exit_code(said.outcome))
}
