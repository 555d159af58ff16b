//! Runs the command with the stand-in for QEMU.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

/// Holds the lines that the stand-in plays.
pub const GUEST_LINES: &str = "STAND_IN";

/// A run whose guest plays these steps.
pub fn run(steps: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command
        .env(
            "MEMWRIGHT_QEMU",
            std::env::current_exe().expect("a test has a path"),
        )
        .env("MEMWRIGHT_KERNEL", "/proc/self/exe")
        .env(GUEST_LINES, steps)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .arg("run");
    command
}

/// The same with a program that every machine has.
pub fn run_true(steps: &str) -> Command {
    let mut command = run(steps);
    command.arg("/bin/true");
    command
}

/// Gives the command its standard input and waits for its end.
pub fn with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child = start(command.stdin(Stdio::piped()));
    let mut pipe = child.stdin.take().expect("it is a pipe");
    pipe.write_all(input).expect("the command reads");
    drop(pipe);
    child.wait_with_output().expect("the command ends")
}

/// Starts the command with pipes.
pub fn start(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

/// Exit code, standard output and standard error of a run.
pub fn ends(command: &mut Command) -> (i32, String, String) {
    described(command.output().expect("the command starts"))
}

/// The same for a run that has ended.
pub fn described(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (
        output.status.code().expect("no signal ended the command"),
        text(output.stdout),
        text(output.stderr),
    )
}
