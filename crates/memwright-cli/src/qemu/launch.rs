//! Starts QEMU so that it cannot outlive the command.
//!
//! The command executes itself with a hidden subcommand. The new process sets its parent-death signal to SIGKILL, which
//! `execve` preserves, and then executes QEMU. QEMU is therefore killed even if the command itself is killed.

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

/// The arguments of the hidden subcommand.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// The process ID of the command, which must still be the parent.
    pub parent: i32,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Starts `program` with a pipe of [`STREAM_PIPE`] bytes as its standard output. The process has its own process group,
/// so that Ctrl-C at a terminal does not end QEMU: Ctrl-C is for the guest. The calling thread must live as long as the
/// run, because Linux sends the parent-death signal when the thread exits.
///
/// # Errors
/// Errors of creating the pipe and of executing the command itself.
pub fn start(
    program: &OsString,
    arguments: &[OsString],
    input: Stdio,
    errors: Stdio,
) -> anyhow::Result<(PipeReader, Child)> {
    let (output, writer) = io::pipe().context("cannot make a pipe")?;
    // A write of QEMU must block while the pipe contains `STREAM_PIPE` unread bytes. The guest relies on this limit
    // when it reuses parts of the window.
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

/// Executes the program of the hidden subcommand in this process. Returns only if the execution fails, with the error.
pub fn become_program(args: &LaunchArgs) -> anyhow::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return io::Error::from(error).into();
    }
    // The parent may have died before this process requested the signal.
    if i64::from(parent_id()) != i64::from(args.parent) {
        return anyhow::anyhow!("the command that started this one is gone");
    }
    let Some((program, arguments)) = args.command.split_first() else {
        return anyhow::anyhow!("no program to become");
    };
    Command::new(program).args(arguments).exec().into()
}
