//! Runs other programs, and prints the command line of each before it starts.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The environment variables that [`set_for_cargo`] has set.
static FOR_CARGO: OnceLock<&'static [(&'static str, &'static str)]> = OnceLock::new();

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Returns cargo's target folder.
pub fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// Returns a command that runs the cargo that started this task, in the root of the workspace.
pub fn cargo<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    let variables = FOR_CARGO.get().copied().unwrap_or_default();
    let unset = |(name, _): &&(&str, &str)| std::env::var_os(name).is_none();
    command.envs(variables.iter().filter(unset).copied());
    command
}

/// Sets environment variables for the cargo commands that follow, except those that the user has set.
pub fn set_for_cargo(variables: &'static [(&'static str, &'static str)]) {
    // `set` fails if the variables are already recorded. A task runs only one tier, so ignore the failure.
    let _ = FOR_CARGO.set(variables);
}

/// Returns the command line for printing, with the name of the program instead of its path.
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

/// Prints the command, runs it with the standard input and output of this process, and returns the exit status.
///
/// # Errors
/// If the program cannot be started.
pub fn status(command: &mut Command) -> Result<ExitStatus> {
    step(&line(command));
    command
        .status()
        .with_context(|| format!("cannot start `{}`", line(command)))
}

/// Prints the command and runs it.
///
/// # Errors
/// If the program cannot be started or does not exit with 0.
pub fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    Ok(())
}

/// Prints the command and runs it. If `deadline` passes, kills the program and the processes that it has started.
///
/// # Errors
/// If the program cannot be started, fails, or is still running at the deadline.
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
            let started = descendants(child.id());
            child.kill()?;
            child.wait()?;
            for id in started {
                let _ = Command::new("kill")
                    .args(["-KILL", &id.to_string()])
                    .status();
            }
            bail!("`{}` was ended: out of time", line(command));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the ids of the descendants of a process.
fn descendants(id: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pairs = names.filter_map(|name| {
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        // The name of the program is in parentheses; the state and the id of the parent follow it.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        Some((parent.parse().ok()?, name.parse().ok()?))
    });
    let pairs: Vec<(u32, u32)> = pairs.collect();
    let mut found = vec![id];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = pairs.iter().filter(|(other, _)| *other == parent);
        found.extend(children.map(|(_, child)| *child));
        next += 1;
    }
    found.split_off(1)
}

/// Runs the command without output. Returns whether it starts and exits with 0.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns the standard output of the command, without surrounding white space, or `None` if the command fails.
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

/// Returns the path of a program in the folders of `PATH` or in the `sbin` folders.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Some programs of Debian are in folders that are not in the `PATH` of an ordinary user.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Runs git in the root of the workspace, and returns its standard output.
///
/// # Errors
/// If git is missing or fails, or if its output is not UTF-8.
pub fn git<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Result<String> {
    let mut command = Command::new("git");
    command.current_dir(root()).args(arguments);
    let output = command.output().context("cannot start git")?;
    ensure!(output.status.success(), "{} failed", line(&command));
    String::from_utf8(output.stdout).context("git printed what is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_a_command_has_started_ends_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1023 & wait"]);
        let deadline = Instant::now() + Duration::from_millis(300);
        assert!(run_until(&mut command, deadline).is_err());
        let runs = |id: &String| {
            let line = std::fs::read(format!("/proc/{id}/cmdline"));
            line.is_ok_and(|line| line == b"sleep\x001023\x00")
        };
        let count = || {
            let all = std::fs::read_dir("/proc").unwrap();
            let ids = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            ids.filter(runs).count()
        };
        // A killed process may not end at once.
        let ended = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            count() == 0
        });
        assert!(ended);
    }
}
