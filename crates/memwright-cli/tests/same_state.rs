//! Tests, on real kernels, which differences are reported as a different state of the program at the marks of a region:
//! differences in its mappings, and differences in the marks themselves.

mod kept;
mod skipped;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kept::has_kernel;
use serde_json::Value;
use tempfile::TempDir;

const KERNEL: &str = "debian:trixie";

/// A program with a region in which it writes 16 pages a second time. `BEFORE` is executed before the region, `INSIDE`
/// in it, and `AFTER` after it. No page of the mapping `spare` is populated at first.
const PROGRAM: &str = r#"
#include <sys/mman.h>
#include "mark.h"
#define MAP(SIZE) mmap(0, (SIZE) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
static void store(volatile char *memory, int pages)
{
	for (int i = 0; i < pages; i++)
		memory[i * 4096] = 1;
}
static int load(volatile char *memory, int pages)
{
	int sum = 0;
	for (int i = 0; i < pages; i++)
		sum += memory[i * 4096];
	return sum;
}
int main(void)
{
	char *memory = MAP(64), *spare = MAP(64);
	store(memory, 16);
	BEFORE;
	MARK_BEGIN(1);
	store(memory, 16);
	INSIDE;
	MARK_END(1);
	AFTER;
	return load(spare, 0);
}
"#;

/// The code that a program executes before the region, in the region, and after the region.
type Work = [&'static str; 3];

fn built(folder: &TempDir, name: &str, [before, inside, after]: Work, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.path().join("main.c"), folder.path().join(name));
    fs::write(&source, PROGRAM).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/memwright");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-Wall", "-Werror", "-Wl,--build-id=none", "-I"]);
    compiler.arg(include).args(options);
    for (word, work) in [("BEFORE", before), ("INSIDE", inside), ("AFTER", after)] {
        compiler.arg(format!("-D{word}={work}"));
    }
    let status = compiler.arg("-o").args([&program, &source]).status();
    assert!(status.unwrap().success());
    program
}

/// Returns the lines of a comparison that report a different state, and the exit code.
fn compared(folder: &TempDir, words: &[&str]) -> (Vec<String>, i32) {
    let file = folder.path().join("json");
    let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["compare", "--no-verify", "--json"])
        .arg(&file)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let read = fs::read(&file).unwrap_or_else(|error| panic!("{error}: {said}"));
    let json: Value = serde_json::from_slice(&read).unwrap();
    let lines = json["state_differs"].as_array().unwrap().iter();
    let lines: Vec<String> = lines
        .map(|line| line.as_str().unwrap().to_owned())
        .collect();
    for line in &lines {
        assert!(said.contains(line), "{line}: {said}");
    }
    (lines, output.status.code().unwrap())
}

/// Compares a program that executes `other` with a program that does not, and returns the result of [`compared`].
fn against_nothing(folder: &TempDir, other: Work) -> (Vec<String>, i32) {
    let first = built(folder, "first", ["", "", ""], &["-static"]);
    let other = built(folder, "other", other, &["-static"]);
    let column = format!("other={KERNEL},program={}", other.display());
    let program = first.to_str().unwrap();
    compared(folder, &["--kernel", KERNEL, "--kernel", &column, program])
}

/// The code that only the second program executes, each with the expected lines about its state.
const CASES: [(Work, &[&str]); 12] = [
    // No difference: memory that is unmapped before the region, and pages that are written after the region.
    (["store(spare, 9), munmap(spare, 64 * 4096)", "", ""], &[]),
    (["", "", "store(spare, 9)"], &[]),
    // Pages that are written before the region and stay mapped make a difference at both marks.
    (
        ["store(spare, 9)", "", ""],
        &[
            "Page tables where it begins: 4 KiB, writable: A and A+9",
            "Page tables where it begins: 4 KiB, dirty: A and A+9",
            "Page tables where it ends: 4 KiB, writable: A and A+9",
            "Page tables where it ends: 4 KiB, dirty: A and A+9",
        ],
    ),
    // Pages that are only read make a difference only if they are mapped or unmapped in the region.
    (["load(spare, 9)", "", ""], &[]),
    (
        ["", "load(spare, 9)", ""],
        &["Page tables, changed from its beginning to its end: 4 KiB, read-only: 0 and +9"],
    ),
    (
        ["load(spare, 9)", "munmap(spare, 64 * 4096)", ""],
        &["Page tables, changed from its beginning to its end: 4 KiB, read-only: 0 and -9"],
    ),
    // In the region, new pages, removed write permission and removed access make a difference.
    (
        ["", "store(spare, 9)", ""],
        &[
            "Page tables where it ends: 4 KiB, writable: A and A+9",
            "Page tables where it ends: 4 KiB, dirty: A and A+9",
        ],
    ),
    (
        ["", "mprotect(memory, 5 * 4096, PROT_READ)", ""],
        &[
            "Page tables where it ends: 4 KiB, writable: A and A-5",
            "Page tables, changed from its beginning to its end: 4 KiB, read-only: 0 and +5",
        ],
    ),
    (
        ["", "mprotect(memory, 5 * 4096, PROT_NONE)", ""],
        &[
            "Page tables where it ends: 4 KiB, writable: A and A-5",
            "Page tables where it ends: 4 KiB, dirty: A and A-5",
            "Page tables where it ends: neither present nor empty: A and A+5",
        ],
    ),
    // The last cases: an additional begin mark, an additional end mark, and a begin mark without an end mark.
    (
        ["MARK_BEGIN(1)", "", ""],
        &["Marks: beginnings while it was open: A and A+1"],
    ),
    (
        ["MARK_END(1)", "", ""],
        &["Marks: ends while it was not open: A and A+1"],
    ),
    (
        ["", "", "MARK_BEGIN(1)"],
        &["Marks: beginnings without an end: A and A+1"],
    ),
];

/// Returns a line of the comparison with its second count relative to the first, as in "A and A+9". A line about a
/// change in the region, or without two counts, is returned unchanged.
fn relative(line: &str) -> String {
    let line = line.strip_prefix("NOT THE SAME STATE: region 1: ").unwrap();
    let number = |text: &str| text.replace(',', "").parse::<i64>().ok();
    let counts = line.rsplit_once(": ").and_then(|(title, counts)| {
        let (first, other) = counts.split_once(" and ")?;
        let change = number(other)? - number(first)?;
        let is_change = title.contains("changed from");
        (!is_change).then(|| format!("{title}: A and A{change:+}"))
    });
    counts.unwrap_or_else(|| line.to_owned())
}

#[test]
fn the_state_is_what_the_program_has_mapped_at_the_marks() {
    if !has_kernel(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (work, expected) in CASES {
        let (lines, code) = against_nothing(&folder, work);
        let lines: Vec<String> = lines.iter().map(|line| relative(line)).collect();
        assert_eq!(lines, expected, "{work:?}");
        // If no line reports a different state, the counts of the complete run still differ, so the exit code is 1.
        assert_eq!(code, if expected.is_empty() { 1 } else { 7 }, "{work:?}");
    }
}

/// The state differs if only one column executes a region, or if one column executes it twice.
#[test]
fn passes_are_a_part_of_the_state() {
    if !has_kernel(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (lines, code) = against_nothing(&folder, ["MARK_BEGIN(2)", "MARK_END(2)", ""]);
    let entered = "NOT THE SAME STATE: region 2: Marks: passes: 0 and 1";
    assert_eq!((lines, code), (vec![entered.to_owned()], 7));
    let twice = ["", "", "MARK_BEGIN(1); MARK_END(1)"];
    let (lines, code) = against_nothing(&folder, twice);
    let passed = "NOT THE SAME STATE: region 1: Marks: passes: 1 and 2";
    assert_eq!((lines, code), (vec![passed.to_owned()], 7));
}

/// Linux 7.3 and Memwright map more pages of the C library around a fault than Linux 6.12. These pages are mapped
/// before the region, so the state does not differ.
#[test]
fn a_dynamic_program_has_one_state_on_every_kernel() {
    let newer = "debian:trixie-backports";
    if !has_kernel(KERNEL) || !has_kernel(newer) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder, "program", ["store(spare, 9)", "", ""], &[]);
    let words = [KERNEL, newer, "memwright"].map(|name| ["--kernel", name]);
    let words = [words.as_flattened(), &[program.to_str().unwrap()]].concat();
    assert_eq!(compared(&folder, &words), (Vec::new(), 1));
}
