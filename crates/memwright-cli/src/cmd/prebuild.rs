//! `memwright prebuild`: builds the C programs that commands need, for a package.

use std::path::Path;

use crate::cmd::bench;
use crate::count::plugin;
use crate::host::output;

/// Builds each program into the folder, and prints its path. A command that is installed as `../../bin/memwright`,
/// relative to this folder, finds the programs there if the folder is called `memwright`.
///
/// # Errors
/// If there is no compiler, or I/O errors of writing.
pub fn prebuild(folder: &Path) -> anyhow::Result<u8> {
    for recipe in bench::recipes().into_iter().chain(plugin::recipes()) {
        let program = recipe.build_for_package(folder)?;
        output::print(format!("{}\n", program.display()).as_bytes())?;
    }
    Ok(0)
}
