//! `cargo xtask demo`: runs real programs on Memwright and prints the account of their memory.

use crate::{install, programs, shell};
use anyhow::{Context, Result, bail};
use std::process::Command;

/// A pipeline of four processes.
const PIPELINE: &str =
    "seq 1 100000 | sort -r | awk '{ sum += $1 } END { print NR, sum }' | md5sum";

/// Installs missing tools, builds the command, and runs two programs with it.
///
/// # Errors
/// If a tool cannot be installed, if the command does not build, or if a program does not exit with 0.
pub fn run() -> Result<()> {
    install::install()?;
    shell::run(&mut shell::cargo([
        "build",
        "--release",
        "-p",
        "memwright-cli",
    ]))?;
    programs::build_all()?;
    let memwright = shell::target_folder().join("release/memwright");
    let busybox = shell::which("busybox").context("busybox is not in PATH")?;
    let program = "programs/build/musl-static/fork_protect";
    for words in [
        vec![
            busybox.display().to_string(),
            "sh".to_owned(),
            "-c".to_owned(),
            PIPELINE.to_owned(),
        ],
        vec![program.to_owned()],
    ] {
        let mut command = Command::new(&memwright);
        command.arg("run").args(&words).current_dir(shell::root());
        eprintln!();
        let status = shell::status(&mut command)?;
        if !status.success() {
            bail!("the program did not end well: {status}");
        }
    }
    Ok(())
}
