//! Tests bad input. Each must give a clear one-line message and an exit code, and never a panic.

use crate::guest::{Ending, Guest};
use crate::prepare::{busybox, program};
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("refusals::text_file", text_file),
        Trial::test("refusals::not_found", not_found),
        Trial::test("refusals::folder", folder),
        Trial::test("refusals::truncated_elf", truncated_elf),
        Trial::test("refusals::elf_for_another_machine", another_machine),
        Trial::test("refusals::missing_interpreter", missing_interpreter),
        Trial::test("refusals::larger_than_memory", larger_than_memory),
        Trial::test("refusals::size_that_does_not_parse", bad_size),
        Trial::test("refusals::unknown_option", unknown_option),
        Trial::test("refusals::qemu_missing", qemu_missing),
        Trial::test("refusals::qemu_too_old", qemu_too_old),
        Trial::test("refusals::qemu_that_dies", qemu_that_dies),
        Trial::test("refusals::dry_run_needs_no_qemu", dry_run),
        Trial::test("refusals::standard_error_that_nobody_reads", unread_error),
        Trial::test("refusals::json_that_cannot_be_written", unwritable_json),
    ]
}

/// Runs a file with these contents as PROGRAM.
fn run_file(content: &[u8], mode: u32) -> Result<Ending, Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("program");
    fs::write(&path, content)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    once(&Guest::new(&path, &[]))
}

fn once(guest: &Guest) -> Result<Ending, Failed> {
    guest.run_once(Path::new(env!("CARGO_BIN_EXE_memwright")))
}

fn hello() -> Result<Vec<u8>, Failed> {
    Ok(fs::read(program("glibc-static", "hello"))?)
}

fn text_file() -> Result<(), Failed> {
    let ending = run_file(b"only some text\n", 0o755)?;
    ending.expect_code(126)?;
    ending.expect_line(&["memwright:", "program"])
}

fn not_found() -> Result<(), Failed> {
    let ending = once(&Guest::new("/nowhere/at/all", &[]))?;
    ending.expect_code(127)?;
    ending.expect_line(&["/nowhere/at/all", "not found"])
}

fn folder() -> Result<(), Failed> {
    let ending = once(&Guest::new("/usr", &[]))?;
    ending.expect_code(126)?;
    ending.expect_line(&["/usr"])
}

fn truncated_elf() -> Result<(), Failed> {
    for length in [10, 100, 1000, 5000] {
        let ending = run_file(&hello()?[..length], 0o755)?;
        ending.expect_code(126)?;
        ending.expect_line(&["memwright:", "program"])?;
    }
    Ok(())
}

fn another_machine() -> Result<(), Failed> {
    let mut bytes = hello()?;
    // This is e_machine in the ELF header; 183 is AArch64.
    bytes[18..20].copy_from_slice(&183u16.to_le_bytes());
    let ending = run_file(&bytes, 0o755)?;
    ending.expect_code(126)?;
    ending.expect_line(&["memwright:", "machine"])
}

fn missing_interpreter() -> Result<(), Failed> {
    let mut bytes = fs::read(program("dynamic", "hello"))?;
    let name = b"/lib64/ld-linux-x86-64.so.2";
    let at = bytes
        .windows(name.len())
        .position(|window| window == name)
        .ok_or("the dynamic program names another interpreter")?;
    bytes[at + 5] = b'X';
    let ending = run_file(&bytes, 0o755)?;
    ending.expect_code(127)?;
    ending.expect_line(&["/lib6X/ld-linux-x86-64.so.2"])
}

fn larger_than_memory() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("program");
    let mut bytes = hello()?;
    bytes.resize(80 << 20, 1);
    fs::write(&path, bytes)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let ending = once(&Guest::new(&path, &[]).option("--memory", "64M"))?;
    ending.expect_code(126)?;
    ending.expect_line(&["--memory"])
}

fn bad_size() -> Result<(), Failed> {
    for size in ["12Q", "", "M", "1.5G", "99999999999999999999G"] {
        let guest = Guest::new(busybox(), &["true"]).option("--memory", size);
        let ending = once(&guest)?;
        ending.expect_code(125)?;
        ending.expect_line(&["--memory"])?;
    }
    Ok(())
}

fn unknown_option() -> Result<(), Failed> {
    let ending = once(&Guest::new(busybox(), &["true"]).option("--nonsense", "1"))?;
    ending.expect_code(125)?;
    ending.expect_line(&["--nonsense"])
}

/// Runs busybox with a PATH that contains only this folder.
fn with_path(path: &Path) -> Result<Ending, Failed> {
    let output = Guest::new(busybox(), &["true"])
        .command(Path::new(env!("CARGO_BIN_EXE_memwright")))
        .env("PATH", path)
        .env_remove("MEMWRIGHT_QEMU")
        .stdin(Stdio::null())
        .output()?;
    Ok(Ending {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        json: None,
    })
}

/// Returns a folder in which this script has the name of QEMU.
fn fake_qemu(script: &str) -> Result<(tempfile::TempDir, PathBuf), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("qemu-system-x86_64");
    fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok((folder, path))
}

fn qemu_missing() -> Result<(), Failed> {
    let empty = tempfile::tempdir()?;
    let ending = with_path(empty.path())?;
    ending.expect_code(125)?;
    ending.expect_line(&["QEMU", "qemu-system-x86"])
}

fn qemu_too_old() -> Result<(), Failed> {
    let (folder, _) = fake_qemu("echo 'QEMU emulator version 6.2.0 (fake)'")?;
    let ending = with_path(folder.path())?;
    ending.expect_code(125)?;
    ending.expect_line(&["6.2.0", "7.2"])
}

fn qemu_that_dies() -> Result<(), Failed> {
    let script = "case $1 in --version) echo 'QEMU emulator version 7.2.0';; *) echo 'no such machine' >&2; exit 1;; esac";
    let (folder, _) = fake_qemu(script)?;
    let ending = with_path(folder.path())?;
    ending.expect_code(125)?;
    ending.expect_line(&["no such machine"])
}

fn dry_run() -> Result<(), Failed> {
    let empty = tempfile::tempdir()?;
    let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["run", "--dry-run"])
        .arg(busybox())
        .arg("true")
        .env("PATH", empty.path())
        .output()?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && line.contains("-icount") && line.lines().count() == 1 {
        return Ok(());
    }
    Err(format!("--dry-run printed {line:?}, {}", output.status).into())
}

/// Checks that a run continues if its messages are discarded because their pipe has no reader.
fn unread_error() -> Result<(), Failed> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["run", "/nowhere/at/all"])
        .stderr(writer)
        .status()?;
    if status.code() == Some(127) {
        return Ok(());
    }
    Err(format!("with standard error closed: {status}").into())
}

/// Checks that the command reports an unwritable JSON file before it runs the program.
fn unwritable_json() -> Result<(), Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["run", "--json", "/nowhere/account.json"])
        .arg(busybox())
        .args(["echo", "ran"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = said.starts_with("memwright: cannot write /nowhere/account.json")
        && said.lines().count() == 1;
    if output.status.code() == Some(125) && output.stdout.is_empty() && refused {
        return Ok(());
    }
    Err(format!("{}: {said:?}", output.status).into())
}
