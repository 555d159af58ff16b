//! Tests kernel images under a real QEMU: small images that misbehave, which the tests generate, and Debian's images.

mod elsewhere;
mod skipped;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Writes a kernel image with one sector of setup code, and returns its path. QEMU's boot code starts `code` in real
/// mode.
fn image(folder: &TempDir, code: &[u8]) -> PathBuf {
    let mut bytes = vec![0xf4; 1 << 16];
    bytes[0x1f1] = 1;
    // A jump over the setup header, the header's magic, and its protocol version, which is 2.0.
    bytes[0x200..0x202].copy_from_slice(&[0xeb, 0x66]);
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x206..0x208].copy_from_slice(&[0, 2]);
    bytes[0x268..0x268 + code.len()].copy_from_slice(code);
    let path = folder.path().join("image");
    fs::write(&path, bytes).unwrap();
    path
}

/// Returns machine code that writes `text` to the first serial line.
fn says(text: &str) -> Vec<u8> {
    let mut code = vec![0xba, 0xf8, 0x03];
    for byte in text.bytes() {
        code.extend([0xb0, byte, 0xee]);
    }
    code
}

/// Code that ends QEMU through the exit port.
const END: [u8; 4] = [0xb0, 0, 0xe6, 0xf4];
/// Code that halts the CPU forever, with interrupts disabled.
const HANG: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfd];

fn run(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command
        .args(arguments)
        .env("TMPDIR", temporary(folder))
        .stdin(Stdio::null());
    command
}

fn temporary(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("tmp");
    fs::create_dir_all(&path).unwrap();
    path
}

/// Returns the number of QEMU processes whose command line contains the path of `folder`.
fn emulators(folder: &TempDir) -> usize {
    let name = folder.path().to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
    let ours = |line: &Vec<u8>| {
        let line = String::from_utf8_lossy(line);
        line.contains("isa-debugcon") && line.contains(name)
    };
    lines.filter(ours).count()
}

/// Asserts that the command left no file and no process behind.
fn leaves_nothing(folder: &TempDir) {
    let left: Vec<_> = fs::read_dir(temporary(folder)).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(emulators(folder), 0);
}

fn ends(folder: &TempDir, output: &Output, code: i32, line: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    // The message is one line. It follows one line for each stage that the command began.
    let is_stage = |line: &&str| line.contains("booting ") || line.contains("/bin/true on ");
    let stages = said.lines().filter(is_stage);
    assert_eq!(said.lines().count(), 1 + stages.count(), "{said}");
    assert!(said.contains(line), "{said}");
    assert!(output.stdout.is_empty());
    leaves_nothing(folder);
}

#[test]
fn guests_that_end_without_a_result_are_one_line() {
    let panic = says("\r\nKernel panic - not syncing: no root\r\nmore\r\n");
    for (code, line) in [
        (
            panic,
            "the guest's kernel panicked: Kernel panic - not syncing: no root",
        ),
        (says("hello\r\n"), "its last words: hello"),
        (Vec::new(), "without a word on its serial line"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = image(&folder, &[&code[..], &END, &HANG].concat());
        let path = path.to_str().unwrap();
        let output = run(&folder, &["run", "--kernel", path, "/bin/true"]).output();
        ends(&folder, &output.unwrap(), 125, line);
        let two = [format!("a={path}"), format!("b={path}")];
        let arguments = [
            "compare",
            "--kernel",
            &two[0],
            "--kernel",
            &two[1],
            "/bin/true",
        ];
        ends(
            &folder,
            &run(&folder, &arguments).output().unwrap(),
            5,
            line,
        );
    }
}

#[test]
fn a_guest_that_hangs_is_ended_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder, &HANG);
    let path = path.to_str().unwrap();
    let arguments = ["run", "--timeout", "2", "--kernel", path, "/bin/true"];
    let output = run(&folder, &arguments).output().unwrap();
    ends(&folder, &output, 124, "--timeout expired");
}

#[test]
fn an_interrupt_ends_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder, &HANG);
    let child = run(
        &folder,
        &["run", "--kernel", path.to_str().unwrap(), "/bin/true"],
    )
    .stderr(Stdio::piped())
    .stdout(Stdio::piped())
    .process_group(0)
    .spawn()
    .unwrap();
    let begun = Instant::now();
    while emulators(&folder) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(process, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    ends(&folder, &output, 130, "ended by signal 2");
}

/// A signal that is sent only to the process ID of a bench, as timeout(1) does, also ends the runs of the bench.
#[test]
fn a_bench_takes_its_runs_along() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder, &HANG);
    let kernel = format!("hangs={}", path.display());
    let arguments = ["bench", "basics", "--no-verify", "--kernel", &kernel];
    let mut child = run(&folder, &arguments)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let wait_for = |done: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(&|| emulators(&folder) > 0);
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    assert!(!child.wait().unwrap().success());
    // The runs also receive the signal, and can exit after the bench does.
    let left = || fs::read_dir(temporary(&folder)).unwrap().count();
    wait_for(&|| emulators(&folder) == 0 && left() == 0);
}

#[test]
fn a_full_disk_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder, &HANG);
    // If the size of files is limited, writing the initrd fails in the same way as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" run --kernel \"$1\" /bin/bash";
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_memwright")])
        .arg(&path)
        .env("TMPDIR", temporary(&folder))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    ends(&folder, &output, 125, "into the initrd: File too large");
}

#[test]
fn without_qemu_it_is_said_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder, &END);
    let arguments = ["compare", "--kernel", path.to_str().unwrap(), "--kernel"];
    let other = format!("b={}", path.display());
    let output = run(&folder, &[&arguments[..], &[&other, "/bin/true"]].concat())
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    ends(&folder, &output, 3, "QEMU is missing");
}

/// Returns Debian's image, downloading it if it is not in the cache. If it is not available, prints a message and
/// returns `None`.
fn debians_image(folder: &TempDir) -> Option<PathBuf> {
    let kept = run(folder, &["kernels", "list"]).output().unwrap();
    if !String::from_utf8_lossy(&kept.stdout).contains("debian:trixie ") {
        let added = run(folder, &["kernels", "add", "debian:trixie"]).output();
        let added = added.unwrap();
        if added.status.code() == Some(3) {
            skipped::skipped(&String::from_utf8_lossy(&added.stderr));
            return None;
        }
    }
    let line = run(
        folder,
        &["run", "--kernel", "debian:trixie", "--dry-run", "/bin/true"],
    );
    let line = { line }.output().unwrap().stdout;
    let line = String::from_utf8(line).unwrap();
    let mut words = line.split_whitespace();
    words.find(|word| *word == "-kernel");
    words.next().map(PathBuf::from)
}

/// Returns the account of a run on Debian's image.
fn account(folder: &TempDir, command: &mut Command, name: &str) -> (Value, String) {
    let file = folder.path().join(name);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = fs::read(&file).unwrap_or_else(|_| panic!("{said}"));
    (serde_json::from_slice(&text).expect(&said), said)
}

/// Returns a command that finds neither a compiler nor a compiled plugin: PATH contains only QEMU, and the cache is
/// empty.
fn without_compiler(folder: &TempDir, arguments: &[&str]) -> Command {
    let tools = folder.path().join("tools");
    fs::create_dir_all(&tools).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let qemu = std::env::split_paths(&path).map(|folder| folder.join("qemu-system-x86_64"));
    let qemu = { qemu }.find(|file| file.exists()).unwrap();
    // An earlier run may have created the link.
    let _ = std::os::unix::fs::symlink(qemu, tools.join("qemu-system-x86_64"));
    let mut command = run(folder, arguments);
    command
        .env("PATH", tools)
        .env("XDG_CACHE_HOME", folder.path().join("cache"));
    command
}

#[test]
fn without_a_compiler_the_rows_of_the_plugin_are_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    let Some(image) = debians_image(&folder) else {
        return;
    };
    let program = program(&folder);
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    let arguments = |file: &Path| {
        let words = ["run", "--full", "--no-verify", "--kernel"].map(str::to_owned);
        let files = [&image, Path::new("--json"), file, &program];
        let files = files.map(|path| path.to_str().unwrap().to_owned());
        [&words[..], &files[..]].concat()
    };
    let words = arguments(&one);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (counted, _) = account(&folder, &mut run(&folder, &words), "one");
    let words = arguments(&other);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (told, said) = account(&folder, &mut without_compiler(&folder, &words), "other");
    assert!(said.contains("a C compiler is missing"), "{said}");
    assert!(counted["run"]["user_faults"]["write"].as_u64() > Some(256));
    for name in [
        "user_faults",
        "kernel_faults",
        "call_interrupts",
        "full_flushes",
    ] {
        assert_eq!(told["run"][name], counted["run"][name], "{name}");
    }
    for name in ["invlpg", "invpcid", "cr4_writes", "instructions"] {
        assert!(counted["run"][name] != Value::Null, "{name}");
        assert_eq!(told["run"][name], Value::Null, "{name}");
    }
    assert_eq!(told["regions"], Value::Null);
    let unmeasured = said.lines().filter(|line| line.contains("not measured"));
    assert_eq!(unmeasured.count(), 6, "{said}");
    leaves_nothing(&folder);
}

/// Except for the part about the host, the JSON has the same bytes on every machine.
#[test]
fn the_account_is_the_same_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let Some(image) = debians_image(&folder) else {
        return;
    };
    let program = program(&folder);
    let room = folder.path().join("room");
    let mut there = elsewhere::command(&room);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let moved = room.join("image");
    fs::copy(&image, &moved).unwrap();
    let words = |image: &Path, file: &str| {
        let kernel = format!("debian={}", image.display());
        let words = ["run", "--no-verify", "--kernel", &kernel, "--json", file];
        let program = program.to_str().unwrap();
        [&words[..], &[program]]
            .concat()
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let (one, other) = (folder.path().join("one"), room.join("other"));
    let here = words(&image, one.to_str().unwrap());
    let here: Vec<&str> = here.iter().map(String::as_str).collect();
    let (mut one, _) = account(&folder, &mut run(&folder, &here), "one");
    there.args(words(&moved, other.to_str().unwrap()));
    let (mut other, said) = account(&folder, &mut there, "room/other");
    assert!(
        one["run"]["instructions"]["user"].as_u64() > Some(1000),
        "{said}"
    );
    for account in [&mut one, &mut other] {
        account.as_object_mut().unwrap().remove("host").unwrap();
    }
    let text = |account: &Value| serde_json::to_string_pretty(account).unwrap();
    assert_eq!(text(&one), text(&other));
}

/// A program that is given by a relative path starts in the current folder, and can execute itself by that path.
#[test]
fn a_relative_program_finds_itself_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some(image) = debians_image(&folder) else {
        return;
    };
    let script = folder.path().join("again");
    fs::write(
        &script,
        "#!/bin/sh\n[ \"$1\" ] && { pwd; exit; }\nexec \"$0\" again\n",
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let options = ["run", "--no-verify", "--no-count", "--kernel"];
    let words = [&options[..], &[image.to_str().unwrap(), "./again"]].concat();
    let output = run(&folder, &words)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("{}\n", fs::canonicalize(folder.path()).unwrap().display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{said}");
}

#[test]
fn doctor_finds_what_the_tests_use() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder, &["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("ok      QEMU: ") && said.contains("ok      counting plugin: "),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(0));
    let output = run(&folder, &["doctor"])
        .env("MEMWRIGHT_QEMU", "/no/qemu")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("MISSING QEMU: QEMU is missing"), "{said}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn completions_and_manual_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&folder, &["completions", shell]).output().unwrap();
        assert!(output.status.success());
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("compare"),
            "{shell}"
        );
    }
    let pages = folder.path().join("man");
    let output = run(&folder, &["manual", pages.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success());
    for page in ["memwright.1", "memwright-run.1", "memwright-check.1"] {
        assert!(pages.join(page).is_file(), "{page}");
    }
}

/// Region 1 writes 256 new pages, region 2 removes and restores write permission, and region 3 writes the pages again.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include "mark.h"
enum { SIZE = 256 * 4096 };
int main(void)
{
	char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MARK_BEGIN(1);
	for (int i = 0; i < SIZE; i += 4096)
		((volatile char *)memory)[i] = 1;
	MARK_END(1);
	MARK_BEGIN(2);
	mprotect(memory, SIZE, PROT_READ);
	mprotect(memory, SIZE, PROT_READ | PROT_WRITE);
	MARK_END(2);
	MARK_BEGIN(3);
	for (int i = 0; i < SIZE; i += 4096)
		((volatile char *)memory)[i] = 2;
	MARK_END(3);
	printf("%d\n", getchar());
	return 7;
}
"#;

fn program(folder: &TempDir) -> PathBuf {
    let source = folder.path().join("main.c");
    fs::write(&source, PROGRAM).unwrap();
    build(folder, &source)
}

#[test]
fn debians_kernel_is_counted_exactly() {
    let folder = tempfile::tempdir().unwrap();
    if debians_image(&folder).is_none() {
        return;
    }
    let program = program(&folder);
    let file = folder.path().join("account.json");
    let arguments = [
        "run",
        "--kernel",
        "debian:trixie",
        "--json",
        file.to_str().unwrap(),
    ];
    let mut command = run(&folder, &arguments);
    let input = folder.path().join("input");
    fs::write(&input, "A").unwrap();
    command.arg(&program).stdin(fs::File::open(&input).unwrap());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(7), &b"65\n"[..]),
        "{said}"
    );
    assert!(
        said.contains("repeats: a second run was the same, byte for byte"),
        "{said}"
    );
    let account: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(account["repeats"], true);
    let regions = account["regions"].as_array().unwrap();
    let [touch, protect, again] = regions.as_slice() else {
        panic!("{regions:?}")
    };
    assert_eq!(touch["counts"]["user_faults"]["write"], 256);
    assert_eq!(touch["counts"]["user_faults"]["write_protect"], 0);
    let writable = |place: &str| touch[place]["small_writable"].as_u64().unwrap();
    assert_eq!(writable("at_end") - writable("at_beginning"), 256);
    assert_eq!(protect["counts"]["user_faults"]["write"], 0);
    assert_eq!(protect["at_beginning"], protect["at_end"]);
    let flushes = |name: &str| protect["counts"][name].as_u64().unwrap();
    assert!(flushes("full_flushes") + flushes("invlpg") >= 2);
    // Linux restores write permission without a fault since 6.1.
    assert_eq!(again["counts"]["user_faults"]["write_protect"], 0);
    assert!(again["counts"]["instructions"]["kernel"].as_u64() < Some(100));
    leaves_nothing(&folder);
    check(&folder, &file, &program);
}

#[test]
fn debians_kernel_is_counted_on_several_nodes() {
    let folder = tempfile::tempdir().unwrap();
    if debians_image(&folder).is_none() {
        return;
    }
    let program = program(&folder);
    let file = folder.path().join("account.json");
    let nodes = ["run", "--numa", "128M:1,128M:0", "--no-verify"];
    let kernel = [
        "--kernel",
        "debian:trixie",
        "--json",
        file.to_str().unwrap(),
    ];
    let mut command = run(&folder, &[&nodes[..], &kernel].concat());
    command.arg(&program).stdin(Stdio::null());
    let (account, said) = account(&folder, &mut command, "account.json");
    assert!(account["memory"] == 256 << 20, "{said}");
    let touch = &account["regions"][0];
    assert_eq!(touch["counts"]["user_faults"]["write"], 256, "{said}");
    // Each node's memory is a separate file on the host. The program's page tables can be in the memory of both nodes,
    // so the command must read both files.
    let writable = |place: &str| touch[place]["small_writable"].as_u64().unwrap();
    assert_eq!(writable("at_end") - writable("at_beginning"), 256);
    leaves_nothing(&folder);
}

/// Returns whether the cache contains Debian's kernel `name`. If the cache does not contain it, prints a message.
fn is_kept(folder: &TempDir, name: &str) -> bool {
    let kept = run(folder, &["kernels", "list"]).output().unwrap();
    let kept = String::from_utf8_lossy(&kept.stdout).into_owned();
    let is_kept = kept
        .lines()
        .any(|line| line.split(' ').next() == Some(name));
    if !is_kept {
        skipped::skipped(&format!("no kernel image: memwright kernels add {name}"));
    }
    is_kept
}

/// Builds a program that may contain marks.
fn build(folder: &TempDir, source: &Path) -> PathBuf {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/memwright");
    let built = folder.path().join("built");
    let status = Command::new("gcc")
        .args(["-O1", "-static", "-I"])
        .arg(headers)
        .arg("-o")
        .arg(&built)
        .arg(source)
        .status();
    assert!(status.unwrap().success());
    built
}

#[test]
fn linux_7_3_and_memwright_count_the_same_faults() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = "debian:trixie-backports";
    if !is_kept(&folder, kernel) {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/fault_counts.c");
    let program = build(&folder, &source);
    let printed = |kernel: &[&str]| {
        let options = ["run", "--thp", "never", "--hugetlb", "8M"];
        let mut command = run(&folder, &[&options[..], kernel].concat());
        let output = command.arg(&program).arg("print").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let linux = printed(&["--no-verify", "--kernel", kernel]);
    assert_eq!(printed(&[]), linux);
    let counts = linux.lines().filter(|line| line.contains("ru_minflt"));
    assert!(counts.count() > 30, "{linux}");
}

/// The program checks the counts of `/proc/vmstat`, among them the counts of huge pages. Linux has no huge pages in a
/// guest with less than 512 MiB of memory.
#[test]
fn linux_7_3_and_memwright_count_the_same_events() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = "debian:trixie-backports";
    if !is_kept(&folder, kernel) {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/event_counts.c");
    let program = build(&folder, &source);
    let options = ["run", "--memory", "1G", "--swap", "zram:64M"];
    for kernel in [&["--no-verify", "--no-count", "--kernel", kernel][..], &[]] {
        let mut command = run(&folder, &[&options[..], kernel].concat());
        let output = command.arg(&program).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
}

/// This program looks up four names of its tree on Linux but not on Memwright: by a path, by a link, by a folder's
/// descriptor, and in a child that is traced. It also looks up two names that must not be reported: one does not exist
/// in the tree, and the other was removed by the program itself.
const CURIOUS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	struct utsname name;
	struct stat about;
	int status = 0, folder = open("/data", O_PATH);
	if (folder < 0 || chdir("/data") || access("/gone/removed", F_OK) || unlink("/gone/removed"))
		return 1;
	uname(&name);
	if (strstr(name.version, "Memwright"))
		return 0;
	open("/data/absent", O_RDONLY);
	stat("/gone/removed", &about);
	open("/data/by-path", O_RDONLY);
	lstat("/data/link/by-link", &about);
	faccessat(folder, "by-folder", R_OK, 0);
	pid_t child = fork();
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		_exit(access("by-child", F_OK) == 0);
	}
	return waitpid(child, &status, 0) != child || status;
}
"#;

#[test]
fn names_that_only_linux_looks_up_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = "debian:trixie-backports";
    if !is_kept(&folder, kernel) {
        return;
    }
    let source = folder.path().join("main.c");
    fs::write(&source, CURIOUS).unwrap();
    let program = build(&folder, &source);
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("data/inner")).unwrap();
    fs::copy(&program, root.join("curious")).unwrap();
    for name in [
        "removed",
        "by-path",
        "inner/by-link",
        "by-folder",
        "by-child",
    ] {
        fs::write(root.join("data").join(name), name).unwrap();
    }
    std::os::unix::fs::symlink("inner", root.join("data/link")).unwrap();
    // The removed file has a folder of its own, because a run on Memwright that removes a file also reads its folder,
    // and so finds the other names in it.
    fs::create_dir(root.join("gone")).unwrap();
    fs::write(root.join("gone/removed"), "").unwrap();
    let file = folder.path().join("account.json");
    let shown = root.to_str().unwrap();
    let json = file.to_str().unwrap();
    let options = ["run", "--root", shown, "--kernel", kernel, "--json", json];
    let mut command = run(&folder, &options);
    command.arg("/curious");
    let (document, said) = account(&folder, &mut command, "account.json");
    assert_eq!(document["outcome"]["exited"], 0, "{said}");
    let missed = ["by-child", "by-folder", "by-path", "inner/by-link"];
    let missed = missed.map(|name| format!("/data/{name}"));
    assert_eq!(document["missed"], serde_json::json!(missed), "{said}");
    for name in &missed {
        assert!(
            said.contains(&format!("did not find {name}, which")),
            "{said}"
        );
    }
    let mut command = run(&folder, &[&options[..], &["--no-verify"]].concat());
    command.arg("/curious");
    let (document, said) = account(&folder, &mut command, "account.json");
    assert_eq!(document.get("missed"), None, "{said}");
}

/// Runs a program that accesses 192 MiB in random order in a guest with 128 MiB. Asserts that Memwright reads at most 5
/// % more pages from swap than Linux.
fn reads_no_more_from_swap_than_linux(swap: &str) {
    let folder = tempfile::tempdir().unwrap();
    let kernel = "debian:trixie-backports";
    if !is_kept(&folder, kernel) {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/lab/random_access.c");
    let program = build(&folder, &source);
    let read = |kernel: &[&str]| -> u64 {
        let options = ["run", "--memory", "128M", "--swap", swap];
        let mut command = run(&folder, &[&options[..], kernel].concat());
        let output = command.arg(&program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        let printed = String::from_utf8(output.stdout).unwrap();
        printed.trim().parse().unwrap()
    };
    let linux = read(&["--no-verify", "--no-count", "--kernel", kernel]);
    let own = read(&[]);
    assert!(own > 20_000 && own * 100 <= linux * 105, "{own} {linux}");
}

#[test]
fn linux_7_3_swaps_in_no_less_from_zram() {
    reads_no_more_from_swap_than_linux("zram:256M");
}

#[test]
fn linux_7_3_swaps_in_no_less_from_a_disk() {
    reads_no_more_from_swap_than_linux("disk:256M");
}

/// Linux disables huge pages in a guest with little memory. The command then prints a message if `--thp` requests huge
/// pages, and the message must agree with the guest's setting.
#[test]
fn huge_pages_that_linux_turns_off_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = "debian:trixie-backports";
    if !is_kept(&folder, kernel) {
        return;
    }
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    for (memory, modes, is_said) in [
        ("560M", "always madvise [never]", true),
        ("576M", "[always] madvise never", false),
    ] {
        let options = ["run", "--no-verify", "--no-count", "--thp", "always"];
        let image = ["--memory", memory, "--kernel", kernel];
        let mut command = run(&folder, &[&options[..], &image].concat());
        let output = command.args(["/bin/cat", file]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), modes);
        let line = "Linux turns transparent huge pages off";
        assert_eq!(said.contains(line), is_said, "{said}");
    }
}

/// When mprotect removes write permission, Linux 6.1 keeps the dirty bit set, and Linux since 6.6 moves it to a
/// software bit. Both bits count as dirty, so the program has the same state on both kernels.
#[test]
fn the_program_of_the_tutorial_has_one_state_on_old_and_new_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = ("debian:bookworm", "debian:trixie-backports");
    if !is_kept(&folder, old) || !is_kept(&folder, new) {
        return;
    }
    let (_, text) = include_str!("../../../docs/tutorial.md")
        .split_once("```c\n")
        .unwrap();
    let source = folder.path().join("prog.c");
    fs::write(&source, text.split_once("```").unwrap().0).unwrap();
    let program = build(&folder, &source);
    let file = folder.path().join("comparison.json");
    let options = ["compare", "--no-verify", "--kernel", old, "--kernel", new];
    let mut command = run(&folder, &options);
    command.arg("--json").arg(&file).arg(&program);
    let (comparison, said) = account(&folder, &mut command, "comparison.json");
    assert_eq!(comparison["state_differs"], serde_json::json!([]), "{said}");
    let dirty = |column: usize| {
        let region = &comparison["columns"][column]["regions"][0];
        region["at_end"]["small_dirty"].as_u64().unwrap()
    };
    assert!(dirty(0) >= 256 && dirty(0) == dirty(1), "{said}");
}

/// Asserts that `check` accepts a second run of `program`, and rejects a run of another program. The baseline in `file`
/// is from a run of `program`.
fn check(folder: &TempDir, file: &Path, program: &Path) {
    let file = file.to_str().unwrap();
    let checks = [
        "check",
        "--no-verify",
        "--kernel",
        "debian:trixie",
        "--baseline",
        file,
    ];
    let input = || fs::File::open(folder.path().join("input")).unwrap();
    let mut same = run(folder, &checks);
    let output = same.arg(program).stdin(input()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let mut other = run(folder, &checks);
    let output = other.arg("/bin/true").stdin(input()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("no claim is possible: the baseline was made with another program"),
        "{said}"
    );
}
