//! Runs other programs, and announces each before it starts.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Returns the folder that cargo builds into.
pub fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// Returns a command of the cargo that started this task, in the root of the workspace.
pub fn cargo<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Returns the command line as a user would type it, for printing.
pub fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        line.push(' ');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            line.push_str(&argument);
        } else {
            line.push('\'');
            line.push_str(&argument.replace('\'', r"'\''"));
            line.push('\'');
        }
    }
    line
}

/// Prints one step of a task.
pub fn step(text: &str) {
    eprintln!("==> {text}");
}

/// Prints the command, runs it with this process's input and output, and returns its exit status.
///
/// # Errors
/// When it cannot be started.
pub fn status(command: &mut Command) -> Result<ExitStatus> {
    step(&line(command));
    command
        .status()
        .with_context(|| format!("cannot start `{}`", line(command)))
}

/// Prints the command and runs it.
///
/// # Errors
/// When it cannot be started or does not exit with 0.
pub fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    Ok(())
}

/// Prints the command and runs it, but kills it when `deadline` passes.
///
/// # Errors
/// When it cannot be started, fails, or is still running at the deadline.
pub fn run_until(command: &mut Command, deadline: Instant) -> Result<()> {
    step(&line(command));
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{}`", line(command)))?;
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                bail!("`{}` failed: {status}", line(command));
            }
            return Ok(());
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            bail!("`{}` was ended: out of time", line(command));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns whether the command starts and exits with 0; its output is discarded.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns what the command prints, without surrounding white space, or `None` when it fails.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the path of a program in the search path.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Debian keeps some programs in folders that an ordinary user's PATH lacks.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Runs git at the root of the workspace. Returns what it printed.
///
/// # Errors
/// Git is missing or fails; output that is not UTF-8.
pub fn git<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Result<String> {
    let mut command = Command::new("git");
    command.current_dir(root()).args(arguments);
    let output = command.output().context("cannot start git")?;
    ensure!(output.status.success(), "{} failed", line(&command));
    String::from_utf8(output.stdout).context("git printed what is not UTF-8")
}
