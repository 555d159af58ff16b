//! Runs one test on Memwright.

use super::list::Test;
use crate::shell;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a test printed, and how it ended.
pub struct Output {
    /// Its standard output.
    pub text: String,
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// What went wrong, if it did not exit by itself.
    pub bad_end: Option<String>,
}

/// Runs one test as its line in the list says, with these policies.
///
/// # Errors
/// When the command cannot be started.
pub fn run(memwright: &Path, test: &Test, programs: &Path, policies: &[String]) -> Result<Output> {
    let mut command = Command::new(memwright);
    command.args(["run", "--memory", &test.memory]);
    command.args(["--cpus", &test.cpus.to_string()]);
    command.args(["--timeout", &test.seconds.to_string()]);
    let program = programs.join(&test.program);
    let path = program.to_string_lossy();
    let options = test.options.iter();
    command.args(options.map(|option| option.replace("{program}", &path)));
    for policy in policies {
        command.args(["--policy", policy]);
    }
    if test.children {
        to_the_last_child(&mut command, &program)?;
    } else if test.user == 0 {
        command.arg(&program);
    } else {
        as_user(&mut command, test.user, &program)?;
    }
    let output = command
        .args(&test.arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", memwright.display()))?;
    let code = output.status.code();
    let errors = String::from_utf8_lossy(&output.stderr);
    Ok(Output {
        text: String::from_utf8_lossy(&output.stdout).into_owned(),
        code,
        bad_end: bad_end(code, &errors),
    })
}

/// Makes a shell start the program and read its output until its last child process has ended.
fn to_the_last_child(command: &mut Command, program: &Path) -> Result<()> {
    let busybox = shell::which("busybox").context("busybox is not in PATH")?;
    command.arg("--file").arg(program).arg(busybox);
    command.args(["sh", "-c", "set -o pipefail; \"$0\" \"$@\" | cat"]);
    command.arg(program);
    Ok(())
}

/// Makes busybox switch to the user, which must be in the user list that it reads, and start the program.
fn as_user(command: &mut Command, user: u32, program: &Path) -> Result<()> {
    let busybox = shell::which("busybox").context("busybox is not in PATH")?;
    ensure!(user == NOBODY, "{PASSWD} has no user {user}");
    let passwd = super::folder().join(PASSWD);
    command
        .arg("--file")
        .arg(with_place(&passwd, "/etc/passwd"));
    command.arg("--file").arg(program).arg(busybox);
    command.args([
        "start-stop-daemon",
        "-S",
        "-c",
        &format!("{user}:{user}"),
        "-x",
    ]);
    command.arg(program).arg("--");
    Ok(())
}

/// The only user in our user list besides root.
const NOBODY: u32 = 65_534;
/// The user list.
const PASSWD: &str = "passwd";

fn with_place(file: &Path, place: &str) -> std::ffi::OsString {
    let mut argument = file.as_os_str().to_owned();
    argument.push(":");
    argument.push(place);
    argument
}

/// Returns why a test that did not exit by itself ended, from the exit codes of `memwright run`.
fn bad_end(code: Option<i32>, errors: &str) -> Option<String> {
    match code {
        Some(124) => Some("out of time".to_owned()),
        Some(125..=127) | None => {
            let line = errors.lines().find(|line| line.starts_with("memwright:"));
            Some(line.unwrap_or("no result").to_owned())
        }
        Some(code @ 129..=192) => Some(format!("killed by signal {}", code - 128)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_are_no_result_are_told() {
        for (code, expected) in [
            (Some(0), None),
            (Some(4), None),
            (Some(124), Some("out of time")),
            (Some(125), Some("memwright: QEMU is missing")),
            (Some(139), Some("killed by signal 11")),
            (None, Some("memwright: QEMU is missing")),
        ] {
            let seen = bad_end(code, "a\nmemwright: QEMU is missing\n");
            assert_eq!(seen.as_deref(), expected, "{code:?}");
        }
    }
}
