//! `memwright kernels`: manages the Linux kernel images that are stored in the cache under names.

use crate::cmd::args::KernelsAction;
use crate::host::output::{self, say};
use crate::linux::kept::{self, Kept};
use crate::linux::{config_fragment, fetch};
use crate::model::failure::{DIFFERENCE, Failure};

/// Adds, lists or removes images, or prints the options that images need. Returns the exit code.
///
/// # Errors
/// One line for wrong usage, for a failure of apt, or for I/O errors in the cache.
pub fn kernels(action: &KernelsAction) -> Result<u8, Failure> {
    match action {
        KernelsAction::Add { name, debug } => print(&line(&fetch::add(name, debug.as_ref())?))?,
        KernelsAction::List => list()?,
        KernelsAction::Config { of: None } => print(&config_fragment::complete())?,
        KernelsAction::Config { of: Some(text) } => return config(text),
        KernelsAction::Remove { name } => kept::remove(name).map_err(Failure::Usage)?,
    }
    Ok(0)
}

/// Prints the options that a configuration lacks. Returns [`DIFFERENCE`] if every run needs one of them.
fn config(text: &str) -> Result<u8, Failure> {
    let lacking = kept::configuration(text).map_err(Failure::Usage)?;
    print(&lacking.fragment())?;
    let [required, others] = [true, false].map(|is_required| lacking.names(is_required));
    say(&summary(text, required.len(), others.len()));
    Ok(if required.is_empty() { 0 } else { DIFFERENCE })
}

/// Returns the line about a configuration that lacks this many options.
fn summary(text: &str, required: usize, others: usize) -> String {
    match (required, others) {
        (0, 0) => format!("{text} lacks no option"),
        (0, others) => format!(
            "{text} has what every run needs; options that other purposes need and it lacks: {others}"
        ),
        (required, others) => format!(
            "{text} lacks options that every run needs: {required}; that other purposes need: {others}"
        ),
    }
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
