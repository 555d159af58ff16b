//! Runs the command with the stand-in for QEMU.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The environment variable that contains the steps of the stand-in.
pub const GUEST_LINES: &str = "STAND_IN";

/// Returns a `memwright run` command whose guest executes the steps in `steps`.
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
        .args(["run", "--full"]);
    command
}

/// Like [`run`], with a program that exists on every machine.
pub fn run_true(steps: &str) -> Command {
    let mut command = run(steps);
    command.arg("/bin/true");
    command
}

/// Writes `input` to the command's standard input, and waits until the command exits.
pub fn with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child = start(command.stdin(Stdio::piped()));
    let mut pipe = child.stdin.take().expect("it is a pipe");
    pipe.write_all(input).expect("the command reads");
    drop(pipe);
    child.wait_with_output().expect("the command ends")
}

/// Starts the command with pipes as its standard output and standard error.
pub fn start(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

/// Runs the command, and returns its exit code, standard output and standard error.
pub fn ends(command: &mut Command) -> (i32, String, String) {
    described(command.output().expect("the command starts"))
}

/// Returns the exit code, standard output and standard error in the output of a command.
pub fn described(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (
        output.status.code().expect("no signal ended the command"),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Runs a command that must not hang, and returns its exit code, standard output and standard error. After two minutes,
/// kills the command and fails the test.
pub fn within(command: &mut Command) -> (i32, String, String) {
    within_to(command, Stdio::piped())
}

/// Like [`within`], but with `output` as the standard output of the command.
pub fn within_to(command: &mut Command, output: Stdio) -> (i32, String, String) {
    let mut child = command
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let end = Instant::now() + Duration::from_secs(120);
    while child.try_wait().expect("it can be waited for").is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            panic!("{command:?} hangs");
        }
        thread::sleep(Duration::from_millis(5));
    }
    described(child.wait_with_output().expect("it has ended"))
}

/// Reads the first line of the guest's output, and returns it without its line break.
pub fn first_line(output: &mut impl Read) -> String {
    let mut line = String::new();
    let mut byte = [0];
    while output.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0].into());
    }
    line
}

/// Returns whether a process has exited. A zombie counts as exited.
pub fn has_ended(process: &str) -> bool {
    match std::fs::read_to_string(Path::new("/proc").join(process).join("stat")) {
        Ok(text) => text
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}

/// Resets the signals that end a command to their default actions, because the tests may have been started with some of
/// these signals ignored.
pub fn interruptible(command: &Command) -> Command {
    let mut same = Command::new("env");
    same.arg("--default-signal=INT,HUP,TERM")
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        same.env(name, value.unwrap_or_default());
    }
    same
}
