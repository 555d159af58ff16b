//! Starts QEMU so that it never outlives the command.
//!
//! The command starts itself with a hidden subcommand. That process requests a signal for the death of its parent,
//! which `execve` preserves, and execs QEMU. QEMU therefore exits even if the command is killed.

use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};
use clap::Args;
use memwright_linux_abi::channel::STREAM_PIPE;
use rustix::process::{Signal, set_parent_process_death_signal};

/// The name of the hidden subcommand.
pub const SUBCOMMAND: &str = "__launch";

/// The arguments of the hidden launcher: the program to exec, and its arguments.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// The process that must still be the parent.
    pub parent: i32,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Starts `program` in a new process group (a terminal's Ctrl-C is for the guest, not for QEMU), with its output in a
/// small pipe. Must be called by the thread that lives longest: the death signal is tied to it.
///
/// # Errors
/// Errors of creating the pipe and of starting the command itself again.
pub fn start(
    program: &OsString,
    arguments: &[OsString],
    input: Stdio,
    errors: Stdio,
) -> anyhow::Result<(PipeReader, Child)> {
    let (output, writer) = io::pipe().context("cannot make a pipe")?;
    // The guest relies on QEMU waiting when the pipe is full.
    let size = rustix::pipe::fcntl_setpipe_size(&output, STREAM_PIPE);
    let size = size.context("cannot size a pipe")?;
    ensure!(size <= STREAM_PIPE, "a pipe holds {size} bytes at least");
    let child = Command::new("/proc/self/exe")
        .arg(SUBCOMMAND)
        .arg(std::process::id().to_string())
        .arg("--")
        .arg(program)
        .args(arguments)
        .stdin(input)
        .stdout(writer)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .context("QEMU cannot be started")?;
    Ok((output, child))
}

/// Execs the program for the hidden subcommand, or returns why it could not.
pub fn become_program(args: &LaunchArgs) -> anyhow::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return io::Error::from(error).into();
    }
    // The parent may have died before the death signal was requested.
    if i64::from(parent_id()) != i64::from(args.parent) {
        return anyhow::anyhow!("the command that started this one is gone");
    }
    let Some((program, arguments)) = args.command.split_first() else {
        return anyhow::anyhow!("no program to become");
    };
    Command::new(program).args(arguments).exec().into()
}
