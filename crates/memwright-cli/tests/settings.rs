//! Tests that the document contains settings that change counts, that `check` rejects runs with other settings, and
//! that neither the kind of standard input nor `--keep` changes a count.

mod skipped;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The kind of standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Null,
    Closed,
    File(&'static str),
    Pipe(&'static str),
    Terminal,
}

fn memwright(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A program that reads standard input byte by byte to the end. With an argument, it reads nothing.
const PROGRAM: &str = r#"
#include <unistd.h>
int main(int count, char **arguments)
{
	char byte;
	while (count < 2 && read(0, &byte, 1) == 1)
		;
	return arguments[0] == 0;
}
"#;

fn built(folder: &TempDir) -> PathBuf {
    let source = folder.path().join("main.c");
    fs::write(&source, PROGRAM).unwrap();
    let program = folder.path().join("program");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-static", "-o"]);
    let status = compiler.args([&program, &source]).status();
    assert!(status.unwrap().success());
    program
}

/// Starts `command` with the standard input `input`, and waits until it exits.
fn with_input(folder: &TempDir, mut command: Command, input: Input) -> Output {
    match input {
        Input::Null => drop(command.stdin(Stdio::null())),
        Input::Closed => {
            let words = [command.get_program()]
                .into_iter()
                .chain(command.get_args());
            let words: Vec<_> = words.map(ToOwned::to_owned).collect();
            command = Command::new("sh");
            command.args(["-c", "exec \"$@\" <&-", "sh"]).args(words);
        }
        Input::File(text) => {
            let file = folder.path().join("input");
            fs::write(&file, text).unwrap();
            command.stdin(fs::File::open(file).unwrap());
        }
        Input::Pipe(text) => {
            let (reader, mut writer) = std::io::pipe().unwrap();
            std::io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
            command.stdin(reader);
        }
        Input::Terminal => {
            let words = [command.get_program()]
                .into_iter()
                .chain(command.get_args());
            let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
            let out = folder.path().join("out");
            let line = format!("{} >{} 2>&1", words.join(" "), out.display());
            command = Command::new("script");
            command.args(["-qec", &line, "/dev/null"]);
            command.stdin(Stdio::null());
        }
    }
    command.process_group(0).output().unwrap()
}

/// Returns the document of a run.
fn document(folder: &TempDir, options: &[&str], words: &[&str], input: Input) -> Value {
    let json = folder.path().join("json");
    // The file may exist from an earlier run.
    let _ = fs::remove_file(&json);
    let mut command = memwright(&["run"]);
    command.args(options).arg("--json").arg(&json).args(words);
    let output = with_input(folder, command, input);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = fs::read(&json).unwrap_or_else(|_| panic!("{input:?}: {said}"));
    serde_json::from_slice(&text).expect(&said)
}

/// Returns the counts in a document of Memwright or of a Linux kernel.
fn counts(document: &Value) -> &Value {
    match document.get("account") {
        Some(account) => account,
        None => &document["run"],
    }
}

/// Returns the options for Debian's kernel. If that kernel is not in the cache, reports the test as skipped and returns
/// `None`.
fn on_linux() -> Option<[&'static str; 3]> {
    let options = ["--no-verify", "--kernel", "debian:trixie"];
    let words = [&["run"], &options[..], &["--dry-run", "/bin/true"]].concat();
    if memwright(&words).output().unwrap().status.success() {
        return Some(options);
    }
    skipped::skipped("no kernel image: memwright kernels add debian:trixie");
    None
}

/// Asserts that the counts and the settings depend on the contents of standard input, but not on its kind.
fn same_whatever_the_input(options: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder);
    let program = program.to_str().unwrap();
    let of = |words: &[&str], input| document(&folder, options, words, input);
    // With an argument, the program reads nothing from its input.
    for (words, inputs) in [
        (
            &[program][..],
            &[Input::Null, Input::Closed, Input::File(""), Input::Pipe("")][..],
        ),
        (
            &[program],
            &[Input::File("some words"), Input::Pipe("some words")],
        ),
        (
            &[program, "none"],
            &[Input::Null, Input::Closed, Input::Terminal],
        ),
    ] {
        let (first, others) = inputs.split_first().unwrap();
        let one = of(words, *first);
        assert!(counts(&one).is_object(), "{one}");
        for input in others {
            let other = of(words, *input);
            assert_eq!(counts(&one), counts(&other), "{first:?} and {input:?}");
            assert_eq!(
                one["settings"], other["settings"],
                "{first:?} and {input:?}"
            );
        }
    }
}

#[test]
fn standard_input_is_one_device_on_memwright() {
    same_whatever_the_input(&[]);
}

#[test]
fn linux_has_one_device_as_standard_input() {
    if let Some(options) = on_linux() {
        same_whatever_the_input(&options);
    }
}

#[test]
fn what_is_kept_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder);
    let words = [program.to_str().unwrap()];
    let kept = folder.path().join("kept");
    let plain = document(&folder, &[], &words, Input::Null);
    let options = ["--keep", kept.to_str().unwrap()];
    assert_eq!(document(&folder, &options, &words, Input::Null), plain);
    assert!(kept.join("initrd.cpio").is_file() && !kept.join("trace.jsonl").exists());
}

/// Runs `check` with a program, and returns the exit code and the output.
fn check(
    folder: &TempDir,
    baseline: &Path,
    options: &[&str],
    input: Input,
) -> (Option<i32>, String) {
    let mut command = memwright(&["check", "--fail-on", "difference", "--baseline"]);
    command.arg(baseline).args(options);
    let output = with_input(folder, command, input);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// Asserts that `check` compares a baseline only with a run that has the same settings. If settings differ, a line must
/// list them.
fn differences_are_refused(kernel: &[&str], changes: &[(&[&str], Input, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder);
    let program = program.to_str().unwrap();
    let data = folder.path().join("data");
    fs::write(&data, "one").unwrap();
    let base = folder.path().join("base");
    let file = format!("{}:/data", data.display());
    let usual = ["--env", "A=1", "--file", &file];
    let text = document(&folder, &[kernel, &usual].concat(), &[program], Input::Null);
    fs::write(&base, text.to_string()).unwrap();
    let all = [kernel, &usual, &[program]].concat();
    let (code, said) = check(&folder, &base, &all, Input::Null);
    assert_eq!(code, Some(0), "{said}");
    for (more, input, named) in changes {
        let all = [kernel, &usual, more, &[program]].concat();
        let (code, said) = check(&folder, &base, &all, *input);
        assert_eq!(code, Some(4), "{more:?}: {said}");
        assert!(said.contains(named), "{named}: {said}");
    }
    fs::write(&data, "two").unwrap();
    let (code, said) = check(&folder, &base, &all, Input::Null);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("file=/data sha256"), "{said}");
}

#[test]
fn check_refuses_other_settings_on_memwright() {
    let input = Input::File("x");
    differences_are_refused(
        &[],
        &[
            (&["--env", "B=2"], Input::Null, "nothing instead of env=B=2"),
            (
                &["--thp", "always"],
                Input::Null,
                "thp=madvise instead of thp=always",
            ),
            (&[], input, "another setting of the guest: stdin=sha256"),
        ],
    );
}

#[test]
fn linux_settings_are_compared_too() {
    let Some(options) = on_linux() else { return };
    let words = ["--append", "nosmt"];
    differences_are_refused(
        &options,
        &[(&words, Input::Pipe("x"), " instead of append=nosmt ")],
    );
}

/// The loopback interface of a Linux guest is up if the guest has a root.
#[test]
fn linux_has_loopback_with_a_root() {
    let Some(options) = on_linux() else { return };
    for (root, reason) in [
        ("/", "Connection refused"),
        ("none", "Network is unreachable"),
    ] {
        let mut command = memwright(&["run", "--root", root]);
        command
            .args(options)
            .args(["busybox", "nc", "127.0.0.1", "1"]);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(reason), "{errors}");
    }
}

/// `--strace` and `--trace` change the kernel's instructions, so they are settings in the document. `check` rejects a
/// run without the option if the baseline was made with it.
#[test]
fn check_refuses_what_was_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder);
    let program = program.to_str().unwrap();
    let trace = folder.path().join("trace");
    let plain = document(&folder, &[], &[program], Input::Null);
    let base = folder.path().join("base");
    for (options, name) in [
        (&["--strace"][..], "strace=on"),
        (&["--trace", trace.to_str().unwrap()], "trace=on"),
    ] {
        let looked = document(&folder, options, &[program], Input::Null);
        let of = |one: &Value| counts(one)["instructions_kernel"].as_u64().unwrap();
        assert_ne!(of(&looked), of(&plain), "{name}");
        assert_eq!(
            counts(&looked)["instructions_user"],
            counts(&plain)["instructions_user"]
        );
        fs::write(&base, looked.to_string()).unwrap();
        let (code, said) = check(&folder, &base, &[program], Input::Null);
        assert_eq!(code, Some(4), "{said}");
        assert!(
            said.contains(&format!("{name} instead of nothing")),
            "{said}"
        );
    }
}

#[test]
fn another_path_is_another_program_unless_that_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder);
    let base = folder.path().join("base");
    let text = document(&folder, &[], &[program.to_str().unwrap()], Input::Null);
    fs::write(&base, text.to_string()).unwrap();
    let copy = folder.path().join("elsewhere");
    fs::copy(&program, &copy).unwrap();
    let copy = copy.to_str().unwrap();
    let (code, said) = check(&folder, &base, &[copy], Input::Null);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("another path of the program"), "{said}");
    let (code, said) = check(&folder, &base, &["--vary", "path", copy], Input::Null);
    // The longer path takes more instructions, so the counts differ.
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("instructions: kernel"), "{said}");
}

/// Returns the output of `--trace` in one format.
fn trace(folder: &TempDir, program: &str, format: &str) -> String {
    let path = folder.path().join(format);
    let mut command = memwright(&["run", "--trace-format", format, "--trace"]);
    let output = command.arg(&path).arg(program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    fs::read_to_string(&path).unwrap()
}

#[test]
fn both_formats_of_a_trace_hold_the_same_events() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder);
    let program = program.to_str().unwrap();
    let lines = trace(&folder, program, "jsonl");
    let text = trace(&folder, program, "chrome");
    let chrome: Value = serde_json::from_str(&text).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    assert_eq!(lines.lines().count(), events.len());
    // Each Chrome event is on a separate line, after the line that begins the document.
    for ((line, event), written) in lines.lines().zip(events).zip(text.lines().skip(1)) {
        let mut fields: Value = serde_json::from_str(line).unwrap();
        let fields = fields.as_object_mut().unwrap();
        let clock = fields.remove("clock").unwrap().as_u64().unwrap();
        // The time is compared as text, because it would be parsed as a floating-point number.
        let time = format!("\"ts\":{}.{:03},", clock / 1000, clock % 1000);
        assert!(written.contains(&time), "{line}: {written}");
        assert_eq!(fields.remove("event").as_ref(), Some(&event["name"]));
        for (name, own) in [("process", "pid"), ("thread", "tid")] {
            let id = fields.remove(name).unwrap_or(0.into());
            assert_eq!(id, event[own], "{line}");
        }
        assert_eq!(Some(&*fields), event["args"].as_object(), "{line}");
    }
    for name in ["fault", "map", "flush"] {
        assert!(events.iter().any(|event| event["name"] == name), "{name}");
    }
}
