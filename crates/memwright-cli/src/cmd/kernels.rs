//! `memwright kernels`: manages the Linux kernel images that are stored in the cache under names.

use crate::cmd::args::KernelsAction;
use crate::host::output::{self, say};
use crate::linux::fetch;
use crate::linux::kept::{self, Kept};
use crate::model::failure::Failure;

/// Adds, lists or removes images.
///
/// # Errors
/// One line for wrong usage, for a failure of apt, or for I/O errors in the cache.
pub fn kernels(action: &KernelsAction) -> Result<u8, Failure> {
    match action {
        KernelsAction::Add { name, debug } => print(&line(&fetch::add(name, debug.as_ref())?))?,
        KernelsAction::List => list()?,
        KernelsAction::Remove { name } => kept::remove(name).map_err(Failure::Usage)?,
    }
    Ok(0)
}

fn list() -> anyhow::Result<()> {
    let kept = kept::all()?;
    if kept.is_empty() {
        say("no kernel was added yet; for example: memwright kernels add debian:trixie");
    }
    print(&kept.iter().map(line).collect::<String>())
}

fn line(kept: &Kept) -> String {
    // The hash is read from a file in the cache. Another program can have changed that file, so the hash can have any
    // length.
    let beginning: String = kept.sha256.chars().take(12).collect();
    format!("{}  {beginning}  {}\n", kept.name, kept.version)
}

fn print(text: &str) -> anyhow::Result<()> {
    output::print(text.as_bytes())
}
