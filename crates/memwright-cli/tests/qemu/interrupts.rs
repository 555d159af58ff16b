//! Tests Ctrl-C, and programs that read the command's output and close it early.

use crate::guest::Guest;
use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("interrupts::once_reaches_the_program", once),
        Trial::test(
            "interrupts::once_kills_a_program_without_handler",
            default_action,
        ),
        Trial::test("interrupts::twice_kills_the_run", twice),
        Trial::test("interrupts::closed_output_ends_the_run", closed_output),
    ]
}

/// Starts a script in a guest and waits for the first line of its output.
fn start(script: &str) -> Result<(Child, BufReader<ChildStdout>), Failed> {
    let mut child = Guest::shell(script)
        .command(Path::new(env!("CARGO_BIN_EXE_memwright")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    if line != "ready\n" {
        child.kill()?;
        return Err(format!("expected \"ready\", got {line:?}").into());
    }
    Ok((child, output))
}

fn interrupt(child: &Child) -> Result<(), Failed> {
    let id = i32::try_from(child.id()).map_err(|_| "the process has no number")?;
    let id = Pid::from_raw(id).ok_or("the process has no number")?;
    kill_process(id, Signal::INT).map_err(|error| error.to_string().into())
}

/// Waits until the command exits, and returns its exit code.
fn end(mut child: Child) -> Result<Option<i32>, Failed> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if Instant::now() > limit {
            child.kill()?;
            child.wait()?;
            return Err("the run did not end".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn expect(child: Child, code: i32) -> Result<(), Failed> {
    match end(child)? {
        Some(seen) if seen == code => Ok(()),
        seen => Err(format!("expected exit code {code}, got {seen:?}").into()),
    }
}

fn once() -> Result<(), Failed> {
    let (child, mut output) =
        start("trap 'echo caught; exit 7' INT; echo ready; while :; do :; done")?;
    interrupt(&child)?;
    let mut line = String::new();
    output.read_line(&mut line)?;
    expect(child, 7)?;
    if line == "caught\n" {
        Ok(())
    } else {
        Err(format!("the handler printed {line:?}").into())
    }
}

fn default_action() -> Result<(), Failed> {
    let (child, _output) = start("echo ready; while :; do :; done")?;
    interrupt(&child)?;
    expect(child, 128 + 2)
}

fn twice() -> Result<(), Failed> {
    let (child, _output) = start("trap '' INT; echo ready; while :; do :; done")?;
    interrupt(&child)?;
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child)?;
    expect(child, 128 + 2)
}

/// Checks that a run ends as if by SIGPIPE if the program that reads its output closes the pipe, as in `memwright run
/// ... | head -1`.
fn closed_output() -> Result<(), Failed> {
    let (child, output) = start("echo ready; while :; do echo more; done")?;
    drop(output);
    expect(child, 128 + 13)
}
