//! `memwright run`.

mod image;
mod native;
mod own;

use crate::cmd::args::RunArgs;
use crate::model::failure::Failure;

/// Runs PROGRAM on the selected kernel or machine, prints its account, and returns the exit code.
///
/// # Errors
/// Anything that prevents the run; the fate of the program itself is an exit code.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    if args.native {
        return native::run(args);
    }
    match args.kernel.is_empty() {
        true => own::run(args),
        false => image::run(args),
    }
}
