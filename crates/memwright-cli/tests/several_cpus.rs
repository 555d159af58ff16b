//! Counts a program on two CPUs: each CPU and each region separately, functions, and interprocessor interrupts. The
//! program is `programs/lab/two_cpus.c`. The number of instructions of some of its parts is known.

mod kept;
mod skipped;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The interrupt vectors with which one CPU requests a TLB flush on one other CPU: `SHOOTDOWN` on Memwright's kernel,
/// and on Linux `CALL_FUNCTION_SINGLE`, the vector of all single-CPU function calls.
const SHOOTDOWN: u64 = 0x24;
const CALL_FUNCTION_SINGLE: u64 = 0xfb;

/// Compiles the program. If it cannot be compiled, or if the cache does not contain the QEMU that counts several CPUs,
/// reports the test as skipped and returns `None`.
fn program(folder: &TempDir) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| home.unwrap_or_default().join(".cache"));
    if !cache.join("memwright/qemu-bookworm-backports").is_dir() {
        skipped::skipped("no later QEMU in the cache: MEMWRIGHT_QEMU=backports fetches it");
        return None;
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let source = top.join("programs/lab/two_cpus.c");
    let program = folder.path().join("two_cpus");
    let compiled = Command::new("musl-gcc")
        .args(["-O2", "-static", "-Wl,--build-id=none", "-I"])
        .arg(top.join("include/memwright"))
        .arg("-o")
        .args([&program, &source])
        .status();
    match compiled {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            skipped::skipped(&format!("musl-gcc: {error}"));
            return None;
        }
    }
    Some(program)
}

/// Returns the document of a run of the program with the options `options`. If they do not set the number of CPUs, the
/// run has two CPUs.
fn document(folder: &TempDir, program: &Path, options: &[&str], arguments: [&str; 2]) -> Value {
    let two: &[&str] = match options.contains(&"--cpus") {
        true => &[],
        false => &["--cpus", "2"],
    };
    let json = folder.path().join("json");
    let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .arg("run")
        .args(two)
        .args(options)
        .arg("--json")
        .args([&json, program])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&fs::read(json).unwrap()).expect(&said)
}

/// Returns the value at this path of a document.
fn at(document: &Value, path: &str) -> u64 {
    let value = document.pointer(path).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no {path} in {document}"))
}

/// Returns how often CPU 0 sent the interrupt `vector` to CPU 1.
fn sent(document: &Value, vector: u64) -> u64 {
    let all = document["sent"].as_array().unwrap();
    let row = all
        .iter()
        .find(|row| (at(row, "/from"), at(row, "/to"), at(row, "/vector")) == (0, 1, vector));
    row.map_or(0, |row| at(row, "/count"))
}

/// Returns the region with the number `number`.
fn region(document: &Value, number: u64) -> &Value {
    let regions = document["regions"].as_array().unwrap();
    let found = regions.iter().find(|one| at(one, "/region") == number);
    found.unwrap_or_else(|| panic!("no region {number} in {document}"))
}

/// Checks that the counts of the CPUs add up to those of the run.
fn check_sums(document: &Value) {
    let cpus = document["by_cpu"].as_array().unwrap();
    for path in [
        "/user_faults/write",
        "/user_faults/read",
        "/invlpg",
        "/full_flushes",
        "/switches",
        "/call_interrupts",
        "/other_interrupts",
        "/instructions/user",
        "/instructions/kernel",
        "/instructions/interrupts",
    ] {
        let sum: u64 = cpus.iter().map(|cpu| at(cpu, path)).sum();
        assert_eq!(sum, at(&document["run"], path), "{path}: {document}");
    }
}

/// Checks that each of the two loops, which run at the same time, has exactly the known number of instructions.
fn check_loops(document: &Value, passes: u64) {
    for (number, passes) in [(1, passes), (2, 2 * passes)] {
        let region = region(document, number);
        assert_eq!(at(region, "/passes"), 1, "{document}");
        let instructions = &region["counts"]["instructions"];
        assert_eq!(at(instructions, "/user"), 1 + 2 * passes, "{document}");
        // The loop makes no system calls.
        assert_eq!(at(instructions, "/kernel"), 0, "{document}");
        let cpu = &document["by_cpu"][number as usize - 1];
        assert!(at(cpu, "/instructions/user") > 2 * passes, "{document}");
    }
}

/// Checks two runs with loops of different length. The second run also unmaps 25 more pages. For each of these pages,
/// CPU 0 must send the interrupt `vector` to CPU 1 once.
fn check_runs(folder: &TempDir, program: &Path, kernel: &str, vector: u64) {
    let counts = [(300_000, 10), (400_000, 35)].map(|(passes, pages): (u64, u64)| {
        let options = ["--no-verify", "--kernel", kernel];
        let [loops, unmaps] = [passes, pages].map(|number| number.to_string());
        let document = document(folder, program, &options, [&loops, &unmaps]);
        check_loops(&document, passes);
        check_sums(&document);
        sent(&document, vector)
    });
    assert_eq!(counts[1] - counts[0], 25, "{counts:?}");
}

#[test]
fn memwright_is_counted_on_two_cpus() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(program) = program(&folder) {
        check_runs(&folder, &program, "memwright", SHOOTDOWN);
    }
}

#[test]
fn linux_is_counted_on_two_cpus() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = "debian:trixie";
    let Some(program) = program(&folder) else {
        return;
    };
    if kept::has_kernel(kernel) {
        check_runs(&folder, &program, kernel, CALL_FUNCTION_SINGLE);
    }
}

/// A second run has the same profile. In the profile of the run, the instructions of all functions add up to the kernel
/// instructions of both CPUs. In the profile of the region, they add up to the kernel instructions of only the CPU that
/// executes the region, although the other CPU handles the interrupts that this CPU sends.
#[test]
fn functions_add_up_to_the_kernels_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(&folder) else {
        return;
    };
    for part in [&[][..], &["--region", "3"]] {
        let options = [&["--kernel", "memwright", "--functions"][..], part].concat();
        let document = document(&folder, &program, &options, ["1000", "40"]);
        assert_eq!(document["repeats"], true, "{document}");
        let counts = match part {
            [] => &document["run"],
            _ => &region(&document, 3)["counts"],
        };
        let profile = &document["functions"];
        let calls = profile["calls"].as_array().unwrap();
        let own: u64 = calls.iter().map(|call| at(call, "/instructions")).sum();
        let kernels = ["kernel", "interrupts"].map(|of| at(counts, &format!("/instructions/{of}")));
        assert_eq!(own, kernels.iter().sum::<u64>(), "{profile}");
        assert_eq!(at(profile, "/total"), own, "{profile}");
        let names = profile["functions"].as_array().unwrap();
        let unattributed = Value::from("[unattributed]");
        assert!(!names.contains(&unattributed), "{profile}");
    }
}

#[test]
fn a_thread_that_moves_ends_no_pass() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(&folder) else {
        return;
    };
    let options = ["--no-verify", "--kernel", "memwright"];
    let document = document(&folder, &program, &options, ["move", "3"]);
    let region = region(&document, 1);
    let marks = ["passes", "begun_again", "not_begun", "not_ended"];
    let found = marks.map(|mark| at(region, &format!("/{mark}")));
    assert_eq!(found, [0, 0, 3, 3], "{document}");
}
