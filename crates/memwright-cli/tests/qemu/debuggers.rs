//! Runs Debian's strace and gdb in the guest, on the C programs of `programs/`.

use crate::guest::Guest;
use crate::prepare::{later_qemu, workspace};
use libtest_mimic::{Completion, Failed, Trial};
use std::path::Path;

const STRACE: &str = "/usr/bin/strace";
const GDB: &str = "/usr/bin/gdb";

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::ignorable_test("debuggers::strace", strace),
        Trial::ignorable_test("debuggers::gdb", gdb),
    ]
}

/// Returns the reason why a test with `program` cannot run; `None` if it can run.
fn missing(program: &str) -> Option<Completion> {
    if !Path::new(program).is_file() {
        return Some(Completion::ignored_with(format!(
            "{program} is not installed"
        )));
    }
    (!later_qemu()).then(|| Completion::ignored_with("no later QEMU"))
}

/// Checks that `strace -f` follows a program's children, and prints their system calls and signals.
fn strace() -> Result<Completion, Failed> {
    if let Some(ignored) = missing(STRACE) {
        return Ok(ignored);
    }
    let program = workspace().join("programs/build/glibc-static/wait");
    let program = program.to_str().ok_or("the checkout's name is no text")?;
    let ending = Guest::new(Path::new(STRACE), &["-f", program])
        .option("--file", program)
        .untraced()
        .run()?;
    ending.expect_code(0)?;
    ending.expect_line(&["execve(", " = 0"])?;
    ending.expect_line(&["clone(", "SIGCHLD"])?;
    ending.expect_line(&["--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED"])?;
    ending.expect_line(&["+++ exited with 0 +++"])?;
    Ok(Completion::Completed)
}

/// Checks that gdb stops at a breakpoint and at a hardware watchpoint, and that it can single-step.
fn gdb() -> Result<Completion, Failed> {
    if let Some(ignored) = missing(GDB) {
        return Ok(ignored);
    }
    let program = workspace().join("programs/build/glibc-static/hello");
    let program = program.to_str().ok_or("the checkout's name is no text")?;
    let commands = [
        "break main",
        "run",
        "watch -l *(long *)($rsp - 8)",
        "continue",
        "delete",
        "stepi",
        "continue",
    ];
    let mut arguments = vec!["-nx", "-batch"];
    for command in commands {
        arguments.extend(["-ex", command]);
    }
    arguments.push(program);
    let mut guest = Guest::new(Path::new(GDB), &arguments)
        .option("--memory", "1G")
        .option("--env", "LC_ALL=C.UTF-8")
        .untraced();
    for file in [program, "/bin/sh", "/usr/share/gdb", "/usr/lib/python3.11"] {
        guest = guest.option("--file", file);
    }
    let ending = guest.run()?;
    ending.expect_code(0)?;
    let text = ending.text();
    for expected in [
        "Breakpoint 1, ",
        "Hardware watchpoint 2: ",
        "New value = ",
        "exited normally]",
    ] {
        if !text.contains(expected) {
            return Err(format!("gdb does not print {expected:?}: {text}").into());
        }
    }
    Ok(Completion::Completed)
}
