//! Compares the numbers of user instructions with numbers that were counted by hand. The programs of
//! `programs/lab/counted` run on Memwright's kernel and on Debian's.

mod kept;
mod skipped;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A program whose instructions were counted by hand: its file, and a function that returns its number of user
/// instructions for a number of iterations.
type Counted = (&'static str, fn(u64) -> u64);

const PROGRAMS: [Counted; 7] = [
    ("writes", |times| 15 + 4 * times),
    ("reads", |times| 15 + 4 * times),
    ("fetches", |times| 5 + 5 * times),
    ("calls", |times| 4 + 4 * times),
    ("exceptions", |times| 35 + 83 * times),
    ("signals", |times| 15 + 9 * times),
    ("strings", |times| 15 + 3 * (times + 1) + 1),
];
const TICKS: Counted = ("ticks", |times| 18 + 2 * times);

/// Assembles a program. Returns its path.
fn built(folder: &TempDir, name: &str, times: u64) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/lab/counted");
    // All programs have the same path, because a longer path takes more kernel instructions.
    let program = folder.path().join("program");
    let status = Command::new("gcc")
        .args(["-static", "-nostdlib", "-Wl,--build-id=none"])
        .arg(format!("-DTIMES={times}"))
        .arg("-o")
        .args([&program, &sources.join(format!("{name}.S"))])
        .status();
    assert!(status.unwrap().success(), "{name}");
    program
}

/// Returns the document of a run of the program with these options.
fn document(folder: &TempDir, options: &[&str], program: &Path) -> Value {
    document_and_output(folder, options, program).0
}

/// Returns the document of a run, and the program's standard output.
fn document_and_output(folder: &TempDir, options: &[&str], program: &Path) -> (Value, Vec<u8>) {
    let json = folder.path().join("json");
    let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .arg("run")
        .args(options)
        .arg("--json")
        .args([&json, program])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let document = serde_json::from_slice(&fs::read(json).unwrap()).expect(&said);
    (document, output.stdout)
}

/// Returns the value of a row of Memwright's account.
fn row(document: &Value, name: &str) -> u64 {
    let value = document["account"][name].as_u64();
    value.unwrap_or_else(|| panic!("no {name} in {document}"))
}

/// Returns the number of instructions in a run that QEMU counted; `of` is the name of the row.
fn instructions(document: &Value, of: &str) -> u64 {
    let value = document["run"]["instructions"][of].as_u64();
    value.unwrap_or_else(|| panic!("no {of} in {document}"))
}

/// Returns the options for a run on Debian's kernel. If that kernel is not in the cache, reports the test as skipped
/// and returns `None`.
fn on_linux() -> Option<[&'static str; 3]> {
    let kernel = "debian:trixie";
    kept::has_kernel(kernel).then_some(["--no-verify", "--kernel", kernel])
}

#[test]
fn memwright_counts_what_was_counted_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    for (name, expected) in PROGRAMS {
        for times in [40, 700] {
            let document = document(&folder, &[], &built(&folder, name, times));
            let found = row(&document, "instructions_user");
            assert_eq!(found, expected(times), "{name} {times}");
        }
    }
}

/// The options for a run on Memwright's kernel whose instructions QEMU's plugin counts, as it does for any other
/// kernel.
const FROM_OUTSIDE: [&str; 3] = ["--no-verify", "--kernel", "memwright"];

/// The plugin's counts equal the counts that the kernel itself reports.
#[test]
fn memwright_counts_the_same_from_outside() {
    let folder = tempfile::tempdir().unwrap();
    for (name, expected) in PROGRAMS.into_iter().chain([TICKS]) {
        let times = 300;
        let program = built(&folder, name, times);
        let account = document(&folder, &[], &program);
        let seen = document(&folder, &FROM_OUTSIDE, &program);
        assert_eq!(instructions(&seen, "user"), expected(times), "{name}");
        let own = row(&account, "instructions_interrupts");
        assert_eq!(instructions(&seen, "interrupts"), own, "{name}");
        // The kernel also counts the instructions before and after the run: those that create the init process, and
        // those that terminate the processes that remain.
        let kernel = instructions(&seen, "kernel") + own;
        let beside = row(&account, "instructions_kernel").checked_sub(kernel);
        assert!(
            beside.is_some_and(|beside| beside < 50_000),
            "{name}: {beside:?}"
        );
        let faults =
            ["user_faults", "kernel_faults"].map(|of| seen["run"][of].as_object().unwrap());
        let sum: u64 = faults
            .iter()
            .flat_map(|kinds| kinds.values())
            .filter_map(Value::as_u64)
            .sum();
        // These rows count pages that the kernel looks up or maps without an exception.
        let of_the_kernel = ["fault_gup", "fault_gup_major", "fault_around"];
        let told: u64 = account["account"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| name.starts_with("fault_") && !of_the_kernel.contains(&&***name))
            .filter_map(|(_, value)| value.as_u64())
            .sum();
        assert_eq!(sum, told, "{name}: {faults:?} {account}");
    }
}

#[test]
fn linux_counts_what_was_counted_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let Some(options) = on_linux() else { return };
    for (name, expected) in PROGRAMS {
        let times = 200;
        let document = document(&folder, &options, &built(&folder, name, times));
        let found = instructions(&document, "user");
        assert_eq!(found, expected(times), "{name}: {document}");
        // Instructions of these programs fault. The plugin counts an instruction at each attempt to execute it. The
        // attempts that fault are then subtracted.
        let faults = &document["run"]["user_faults"];
        let kind = match name {
            "writes" => "write",
            "reads" => "read",
            _ => "fetch",
        };
        let least = if kind == "fetch" { 1 } else { times };
        assert!(faults[kind].as_u64() >= Some(least), "{name}: {document}");
    }
}

/// The guest's clock advances by one nanosecond for each instruction of the program or of the kernel. Two runs read the
/// clock a different number of times. The time between the first and the last reading, without the program's own
/// instructions, is a number of kernel instructions. Between the runs, this number and the kernel instructions of the
/// complete run must differ by the same amount.
#[test]
fn the_kernels_instructions_are_what_the_clock_counts() {
    let folder = tempfile::tempdir().unwrap();
    let counts = [50, 1050].map(|times| {
        let program = built(&folder, "clock", times);
        let (document, readings) = document_and_output(&folder, &[], &program);
        let words: Vec<u64> = readings
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let [seconds, nanoseconds, last_seconds, last_nanoseconds] = words[..] else {
            panic!("{readings:?}");
        };
        let passed = (last_seconds - seconds) * 1_000_000_000 + last_nanoseconds - nanoseconds;
        assert_eq!(row(&document, "instructions_user"), 11 + 7 * times);
        // A run as short as this one contains no timer tick.
        assert_eq!(row(&document, "instructions_interrupts"), 0);
        let kernel = row(&document, "instructions_kernel");
        (kernel, passed - 7 * (times - 1))
    });
    let [(few, few_passed), (many, many_passed)] = counts;
    assert!(few_passed > 0 && few > few_passed, "{counts:?}");
    assert_eq!(many - few, many_passed - few_passed, "{counts:?}");
}

/// The account has a separate row for the instructions of timer ticks. Additional ticks do not change the rows of user
/// and kernel instructions, and each tick takes the same number of instructions.
#[test]
fn ticks_on_memwright_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (name, expected) = TICKS;
    let counts = [1_000_001, 20_000_000].map(|times| {
        let document = document(&folder, &[], &built(&folder, name, times));
        let rows = ["user", "kernel", "interrupts"];
        let [user, kernel, interrupts] =
            rows.map(|of| row(&document, &format!("instructions_{of}")));
        assert_eq!(user, expected(times));
        (kernel, interrupts)
    });
    let [(few_kernel, few), (many_kernel, many)] = counts;
    assert_eq!(few_kernel, many_kernel);
    // The first run has 2 ticks, and the second has 40.
    assert!(few > 0 && many == 20 * few, "{few} and {many}");
}

#[test]
fn ticks_on_linux_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    let Some(options) = on_linux() else { return };
    let (name, expected) = TICKS;
    for times in [2_000_000, 20_000_000] {
        let document = document(&folder, &options, &built(&folder, name, times));
        assert_eq!(
            instructions(&document, "user"),
            expected(times),
            "{document}"
        );
        let region = &document["regions"][0]["counts"];
        let counted = &region["instructions"];
        assert_eq!(counted["user"], 1 + 2 * times, "{document}");
        // The program only increments a counter, so the kernel executes no instructions outside interrupts.
        assert_eq!(counted["kernel"], 0, "{document}");
        let interrupts = region["other_interrupts"].as_u64().unwrap();
        assert!(interrupts > 0, "{document}");
        let spent = counted["interrupts"].as_u64().unwrap();
        // A handler saves and loads fifteen registers, which takes 30 instructions.
        assert!(spent > 30 * interrupts, "{document}");
    }
}
