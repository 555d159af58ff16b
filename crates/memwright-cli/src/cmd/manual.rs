//! Generates shell completions and manual pages from the definition of the command line.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cmd::args::Cli;
use crate::host::output;

/// Prints the completions for a shell. Returns the exit code.
///
/// # Errors
/// I/O errors of printing.
pub fn completions(shell: Shell) -> anyhow::Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "memwright", &mut text);
    output::print(&text)?;
    Ok(0)
}

/// Writes a manual page for the command and one for each of its subcommands. Returns the exit code.
///
/// # Errors
/// I/O errors of writing.
pub fn manual(folder: &Path) -> anyhow::Result<u8> {
    let context = || format!("cannot write to {}", folder.display());
    fs::create_dir_all(folder).with_context(context)?;
    clap_mangen::generate_to(Cli::command().flatten_help(false), folder).with_context(context)?;
    Ok(0)
}
