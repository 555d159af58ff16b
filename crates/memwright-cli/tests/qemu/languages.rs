//! Runs programs in other languages on four CPUs: Go's runtime, and Debian's Perl and Python. The output on the host is
//! the reference.

use crate::guest::Guest;
use crate::prepare::{later_qemu, workspace};
use libtest_mimic::{Completion, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::Command;

const PERL: &str = "/usr/bin/perl";
const PYTHON: &str = "/usr/bin/python3";

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::ignorable_test("languages::go", go),
        Trial::ignorable_test("languages::perl", perl),
        Trial::ignorable_test("languages::python", python),
    ]
}

/// Checks that the output in the guest, on four CPUs and in both runs, is the same as on the host.
fn same(program: &Path, arguments: &[&str], files: &[PathBuf]) -> Result<Completion, Failed> {
    if !later_qemu() {
        return Ok(Completion::ignored_with("no later QEMU"));
    }
    let reference = output(Command::new(program).args(arguments).env_clear())?;
    let mut guest = Guest::new(program, arguments)
        .cpus(4)
        .option("--memory", "1G")
        .untraced();
    for file in files {
        guest = guest.option("--file", file);
    }
    let ending = guest.run()?;
    ending.expect_output(&reference)?;
    ending.expect_code(0)?;
    Ok(Completion::Completed)
}

/// Returns the output of a command on the host.
fn output(command: &mut Command) -> Result<Vec<u8>, Failed> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed here, on the host").into());
    }
    Ok(output.stdout)
}

fn go() -> Result<Completion, Failed> {
    let program = workspace().join("programs/build/go/heap");
    if !program.is_file() {
        return Ok(Completion::ignored_with("Go is not installed"));
    }
    same(&program, &[], &[])
}

fn script(name: &str) -> PathBuf {
    workspace().join("programs").join(name)
}

/// Returns the paths in a text that contains one path per line.
fn paths(text: &[u8]) -> Vec<PathBuf> {
    String::from_utf8_lossy(text)
        .lines()
        .map(PathBuf::from)
        .collect()
}

fn perl() -> Result<Completion, Failed> {
    // The modules that the script uses, and the shared objects that two of them load.
    let list = "use strict; use warnings; use attributes; use threads; use threads::shared; use Config; use DynaLoader; \
        print map { \"$_\\n\" } values %INC, @DynaLoader::dl_shared_objects";
    let mut files = paths(&output(Command::new(PERL).args(["-e", list]))?);
    let script = script("data.pl");
    files.push(script.clone());
    let script = script.to_str().ok_or("the checkout's name is no text")?;
    same(Path::new(PERL), &[script], &files)
}

fn python() -> Result<Completion, Failed> {
    let list = "import os, sys, threading, zlib\n\
        for module in list(sys.modules.values()):\n    \
        if getattr(module, '__file__', None): print(module.__file__)";
    let mut files = paths(&output(Command::new(PYTHON).args(["-ISc", list]))?);
    let script = script("data.py");
    files.push(script.clone());
    let script = script.to_str().ok_or("the checkout's name is no text")?;
    same(Path::new(PYTHON), &["-IS", script], &files)
}
