//! `memwright run`.

mod image;
mod native;
mod own;

use crate::cmd::args::RunArgs;
use crate::model::failure::Failure;

/// Runs PROGRAM where the command line says, prints its account, and returns the exit code.
///
/// # Errors
/// Everything that keeps it from running; what becomes of the program is an exit code.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    if args.native {
        return native::run(args);
    }
    match args.kernel.is_empty() {
        true => own::run(args),
        false => image::run(args),
    }
}
