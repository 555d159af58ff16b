//! `memwright run`: runs a program on Memwright's kernel, on a kernel image, or on this machine.

mod image;
mod native;
mod own;

use crate::cmd::args::RunArgs;
use crate::model::failure::Failure;

/// Runs PROGRAM on the selected kernel or machine, prints its account, and returns the exit code.
///
/// # Errors
/// Anything that prevents the run. How the program itself ended determines the exit code.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    if args.native {
        return native::run(args);
    }
    match args.kernel.is_empty() {
        true => own::run(args),
        false => image::run(args),
    }
}
