//! Tests profiles by function: of a kernel that was counted by hand, and of Debian's kernels, whose runs are compared
//! with runs without a profile.

mod skipped;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The number of system calls that the kernel of `programs/lab/kernel` serves.
const TIMES: u64 = 10;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/lab")
}

fn compile(arguments: &[&str], to: &Path, source: &Path) {
    let mut command = Command::new("gcc");
    let include = sources().join("../../include/memwright");
    command.args(["-O2", "-static", "-Wl,--build-id=none", "-I"]);
    command.arg(include).args(arguments).arg("-o");
    let output = command.args([to, source]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Assembles the kernel of `programs/lab/kernel` with these symbols defined. Returns the path of its image.
fn kernel(folder: &TempDir, name: &str, definitions: &[&str]) -> PathBuf {
    let image = folder.path().join(name);
    let script = format!("-Wl,-T,{}", sources().join("kernel/kernel.ld").display());
    let times = format!("-DTIMES={TIMES}");
    let options = [&["-nostdlib", &script, &times], definitions].concat();
    compile(&options, &image, &sources().join("kernel/kernel.S"));
    image
}

/// Builds a program to pass to the command, and returns its path. The kernel of `programs/lab/kernel` does not execute
/// it.
fn program(folder: &TempDir) -> PathBuf {
    let program = folder.path().join("program");
    compile(
        &["-nostdlib"],
        &program,
        &sources().join("counted/writes.S"),
    );
    program
}

fn memwright(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Returns the instructions and the number of calls of each function. Also returns the sum of the instructions in all
/// call trees; each entry to the kernel begins a call tree.
fn functions(profile: &Value) -> (BTreeMap<String, (u64, u64)>, u64) {
    let names = profile["functions"].as_array().unwrap();
    let calls = profile["calls"].as_array().unwrap();
    let number = |call: &Value, name: &str| call[name].as_u64().unwrap();
    let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut sums: Vec<u64> = calls
        .iter()
        .map(|call| number(call, "instructions"))
        .collect();
    for call in calls {
        let name = names[number(call, "function") as usize].as_str().unwrap();
        let (own, count) = found.entry(name.to_owned()).or_default();
        *own += number(call, "instructions");
        *count += number(call, "count");
    }
    let mut roots = 0;
    for (index, call) in calls.iter().enumerate().rev() {
        match call.get("caller").and_then(Value::as_u64) {
            Some(caller) => sums[caller as usize] += sums[index],
            None => roots += sums[index],
        }
    }
    (found, roots)
}

#[test]
fn a_kernel_counted_by_hand_has_these_functions() {
    let folder = tempfile::tempdir().unwrap();
    let (image, program) = (kernel(&folder, "k", &[]), program(&folder));
    let json = folder.path().join("json");
    let [image, program, file] = [&image, &program, &json].map(|path| path.to_str().unwrap());
    let output = memwright(&[
        "run",
        "--kernel",
        image,
        "--functions",
        "--json",
        file,
        program,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document = read(&json);
    assert_eq!(document["repeats"], true, "{document}");
    let profile = &document["functions"];
    let (found, roots) = functions(profile);
    let expected = [("entry", 3), ("helper", 4), ("other", 2), ("work", 6)];
    let expected = expected.map(|(name, own)| (name.to_owned(), (own * TIMES, TIMES)));
    assert_eq!(found, BTreeMap::from(expected), "{document}");
    assert_eq!(
        (roots, profile["mismatches"].as_u64()),
        (15 * TIMES, Some(0))
    );
    assert_eq!(profile["total"], 15 * TIMES);
}

/// Returns the lines of the table of functions that `compare` prints, split into words.
fn compared(folder: &TempDir, before: &Path, after: &Path, options: &[&str]) -> Vec<String> {
    let program = program(folder);
    let columns = [("before=", before), ("after=", after)];
    let columns = columns.map(|(name, image)| format!("{name}{}", image.display()));
    let mut arguments = vec!["compare", "--functions", "--no-verify"];
    for column in &columns {
        arguments.extend(["--kernel", column]);
    }
    arguments.extend(options);
    arguments.push(program.to_str().unwrap());
    let output = memwright(&arguments);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let table = said.split("by function").nth(1).expect(&said);
    let rows = table.lines().skip_while(|line| line.trim() != "self");
    let rows = rows.skip(1).take_while(|line| !line.trim().is_empty());
    rows.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn an_inlined_function_is_no_difference_but_its_call() {
    let folder = tempfile::tempdir().unwrap();
    let before = kernel(&folder, "before", &[]);
    let after = kernel(&folder, "after", &["-DINLINED"]);
    let rows = compared(&folder, &before, &after, &["--percent-limit", "0"]);
    let expected = [
        "work (with 1 more) 100 80 -20",
        "(2 other functions) 50 50 =",
        "(total) 150 130 -20",
    ];
    assert_eq!(rows, expected);
    let rows = compared(&folder, &before, &after, &["--ungroup"]);
    assert_eq!(rows[1..3], ["work 60 80 +20", "helper 40 0 -40"]);
}

#[test]
fn one_instruction_more_is_the_one_row() {
    let folder = tempfile::tempdir().unwrap();
    let before = kernel(&folder, "before", &[]);
    let after = kernel(&folder, "after", &["-DLONGER"]);
    let rows = compared(&folder, &before, &after, &[]);
    let expected = [
        "other 20 30 +10",
        "(3 other functions) 130 130 =",
        "(total) 150 160 +10",
    ];
    assert_eq!(rows, expected);
}

/// Returns the names of Debian's kernels in the cache.
fn kept() -> Vec<String> {
    let output = memwright(&["kernels", "list"]);
    let list = text(&output.stdout);
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let debian = names.filter(|name| name.starts_with("debian:"));
    debian.map(str::to_owned).collect()
}

/// Profiles call chains that are hard to reconstruct: task switches, signals, faults in the kernel, and interrupts.
#[test]
fn profiles_of_linux_add_up_and_change_no_count() {
    let kernels = kept();
    if kernels.is_empty() {
        skipped::skipped("no kernel image: memwright kernels add debian:trixie");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    compile(&["-pthread"], &program, &sources().join("mixed.c"));
    let program = program.to_str().unwrap();
    for kernel in kernels {
        let document = |options: &[&str]| {
            let json = folder.path().join("json");
            let first = ["run", "--kernel", &kernel, "--json", json.to_str().unwrap()];
            let output = memwright(&[&first, options, &[program]].concat());
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            read(&json)
        };
        let plain = document(&["--no-verify"]);
        let profiled = document(&["--functions"]);
        assert_eq!(profiled["repeats"], true, "{kernel}");
        assert_eq!(plain["run"], profiled["run"], "{kernel}");
        assert_eq!(plain["regions"], profiled["regions"], "{kernel}");
        adds_up(&profiled, &profiled["run"], &kernel);
        let region = document(&["--functions", "--region", "1", "--no-verify"]);
        let counts = &region["regions"][0]["counts"];
        let found = adds_up(&region, counts, &kernel);
        // The program executes the region twice, and makes 100 system calls in each pass.
        let (_, calls) = found["__x64_sys_getppid"];
        assert_eq!(calls, 200, "{kernel}");
    }
}

/// Asserts that every instruction is in a named function and that every call has returned. Returns the instructions and
/// the number of calls of each function.
fn adds_up(document: &Value, counts: &Value, kernel: &str) -> BTreeMap<String, (u64, u64)> {
    let profile = &document["functions"];
    let (found, roots) = functions(profile);
    let own: u64 = found.values().map(|(own, _)| own).sum();
    let instructions = &counts["instructions"];
    let [kernels, interrupts] =
        ["kernel", "interrupts"].map(|name| instructions[name].as_u64().unwrap());
    assert_eq!(own, kernels + interrupts, "{kernel}");
    assert_eq!(roots, own, "{kernel}");
    assert_eq!(profile["total"], own, "{kernel}");
    assert_eq!(profile["mismatches"], 0, "{kernel}");
    assert!(!found.contains_key("[unattributed]"), "{kernel}");
    found
}

#[test]
fn what_cannot_be_profiled_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = kernel(&folder, "k", &[]);
    let stripped = folder.path().join("stripped");
    fs::copy(&image, &stripped).unwrap();
    let status = Command::new("strip").arg(&stripped).status().unwrap();
    assert!(status.success());
    let program = program(&folder);
    let [image, stripped, program] =
        [&image, &stripped, &program].map(|path| path.to_str().unwrap());
    let on = ["run", "--no-verify", "--kernel"];
    for (kernel, options, code, said) in [
        (image, &["--region", "1"][..], 125, "--functions"),
        (image, &["--functions", "--no-count"], 125, "--no-count"),
        (
            image,
            &["--functions", "--percent-limit", "x"],
            125,
            "not a number from 0 to 100",
        ),
        (image, &["--functions", "--region", "32767"], 125, "32766"),
        (
            image,
            &["--functions", "--region", "7"],
            125,
            "did not pass region 7",
        ),
        (stripped, &["--functions"], 0, "has a list of functions"),
    ] {
        let output = memwright(&[&on, &[kernel][..], options, &[program]].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {error}");
        assert!(error.contains(said), "{options:?}: {error}");
    }
}
