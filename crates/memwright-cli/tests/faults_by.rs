//! Tests `--faults-by` with a program whose page faults are known by function, line, area and process.

mod kept;
mod skipped;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const SOURCE: &str = include_str!("faults/faults.c");
const LIBRARY: &str = include_str!("faults/library.c");
/// The kind of a first write to anonymous memory, in the account of Memwright.
const FIRST_WRITE: &str = "demand_zero";

fn compile(arguments: &[&str], folder: &Path) {
    let mut command = Command::new("gcc");
    command.args(["-O1", "-fno-pie", "-no-pie"]).args(arguments);
    let output = command.current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// The arguments of the compiler that build the program.
const PROGRAM: [&str; 6] = [
    "-o",
    "faults",
    "faults.c",
    "-L.",
    "-ltouch",
    "-Wl,-rpath,$ORIGIN",
];

/// Builds the program and its library with the compiler options `options`, and returns the path of the program.
fn built(folder: &TempDir, options: &[&str]) -> PathBuf {
    let folder = folder.path();
    fs::write(folder.join("faults.c"), SOURCE).unwrap();
    fs::write(folder.join("library.c"), LIBRARY).unwrap();
    let library = ["-shared", "-fPIC", "-o", "libtouch.so", "library.c"];
    compile(&[options, &library].concat(), folder);
    compile(&[options, &PROGRAM].concat(), folder);
    folder.join("faults")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn memwright(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

/// Runs a part of the program and returns the document. Checks that the rows add up to the account.
fn run(folder: &TempDir, program: &Path, by: &str, part: &str) -> Value {
    let json = folder.path().join("json");
    let [file, program] = [&json, program].map(|path| path.to_str().unwrap());
    let output = memwright(&["run", "--faults-by", by, "--json", file, program, part]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("Page faults by {by}")), "{said}");
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let account = document["account"].as_object().unwrap().iter();
    let counted = account.filter(|(name, _)| {
        let is_other = ["fault_around", "fault_gup_major"].contains(&name.as_str());
        name.starts_with("fault_") && !is_other
    });
    let counted: u64 = counted.map(|(_, count)| count.as_u64().unwrap()).sum();
    let rows = document["faults"]["rows"].as_array().unwrap();
    let found: u64 = rows.iter().map(|row| row["faults"].as_u64().unwrap()).sum();
    assert_eq!(found, counted, "{document}");
    assert_eq!(document["faults"]["total"], counted, "{document}");
    document["faults"].clone()
}

/// Returns the number of faults of a kind in the rows for which `is` returns true.
fn count(faults: &Value, kind: &str, is: impl Fn(&Value) -> bool) -> u64 {
    let rows = faults["rows"].as_array().unwrap().iter();
    let kinds = rows.filter(|row| is(row)).map(|row| &row["kinds"][kind]);
    kinds.map(|count| count.as_u64().unwrap_or(0)).sum()
}

fn named(name: &str) -> impl Fn(&Value) -> bool {
    move |row| row["name"] == name
}

/// Returns the file and the number of the line in `source` that has this comment.
fn line(file: &str, source: &str, comment: &str) -> String {
    let comment = format!("/* {comment} */");
    let place = source.lines().position(|line| line.contains(&comment));
    format!("{file}:{}", place.unwrap() + 1)
}

#[test]
fn faults_have_functions_lines_areas_and_processes() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder, &["-g"]);
    let faults = run(&folder, &program, "symbol", "known");
    assert_eq!(
        count(&faults, FIRST_WRITE, named("touch_ten")),
        10,
        "{faults}"
    );
    let in_library = |row: &Value| {
        let object = row["object"].as_str().unwrap_or_default();
        row["name"] == "touch_twenty" && object.ends_with("/libtouch.so")
    };
    assert_eq!(count(&faults, FIRST_WRITE, in_library), 20, "{faults}");
    let in_read = |row: &Value| row["call"] == "read" && row["name"] == "read";
    assert_eq!(count(&faults, FIRST_WRITE, in_read), 1, "{faults}");

    let faults = run(&folder, &program, "line", "known");
    let ends = |line: String| {
        move |row: &Value| {
            row["name"]
                .as_str()
                .is_some_and(|name| name.ends_with(&line))
        }
    };
    let ten = ends(line("faults.c", SOURCE, "ten"));
    assert_eq!(count(&faults, FIRST_WRITE, ten), 10, "{faults}");
    let twenty = ends(line("library.c", LIBRARY, "in the library"));
    assert_eq!(count(&faults, FIRST_WRITE, twenty), 20, "{faults}");

    let faults = run(&folder, &program, "area", "known");
    let anonymous = count(&faults, FIRST_WRITE, named("[anonymous]"));
    assert!(anonymous >= 31, "{faults}");
    let in_program = |row: &Value| {
        let name = row["name"].as_str().unwrap_or_default();
        name.starts_with(&format!("{}+0x", program.display()))
    };
    assert!(count(&faults, "file", in_program) > 0, "{faults}");

    let faults = run(&folder, &program, "process", "known");
    let rows = faults["rows"].as_array().unwrap();
    assert_eq!(
        (rows.len(), &rows[0]["name"]),
        (1, &"2 faults".into()),
        "{faults}"
    );
}

#[test]
fn faults_of_children_threads_and_code_without_a_file_have_rows() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder, &["-g"]);
    let faults = run(&folder, &program, "symbol", "processes");
    assert_eq!(count(&faults, "cow", named("copy_five")), 5, "{faults}");
    // The child executes the program with the part `known`.
    assert_eq!(
        count(&faults, FIRST_WRITE, named("touch_ten")),
        10,
        "{faults}"
    );
    assert!(all(&faults, named("[exec]")) > 0, "{faults}");
    let faults = run(&folder, &program, "process", "processes");
    let rows = faults["rows"].as_array().unwrap().iter();
    let mut names: Vec<&str> = rows.map(|row| row["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    // After the exec, the name of the child is the last part of the path that it executed.
    assert_eq!(names, ["2 faults", "3 exe", "3 faults"], "{faults}");

    let faults = run(&folder, &program, "symbol", "thread");
    assert_eq!(
        count(&faults, FIRST_WRITE, named("touch_seven")),
        7,
        "{faults}"
    );
    let faults = run(&folder, &program, "symbol", "anonymous");
    assert_eq!(
        count(&faults, FIRST_WRITE, named("[anonymous code]")),
        1,
        "{faults}"
    );
    let faults = run(&folder, &program, "area", "gone");
    assert!(
        count(&faults, FIRST_WRITE, named("[anonymous]")) >= 4,
        "{faults}"
    );
    let faults = run(&folder, &program, "symbol", "gone");
    assert_eq!(
        count(&faults, FIRST_WRITE, named("touch_four")),
        4,
        "{faults}"
    );
}

#[test]
fn files_without_symbols_or_lines_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder, &[]);
    let faults = run(&folder, &program, "line", "known");
    assert_eq!(
        count(&faults, FIRST_WRITE, named("touch_ten")),
        10,
        "{faults}"
    );
    let notes = |faults: &Value| faults["notes"].to_string();
    let path = program.to_str().unwrap();
    assert!(notes(&faults).contains("-g adds it"), "{faults}");
    assert!(notes(&faults).contains(path), "{faults}");

    compile(&[&["-s"][..], &PROGRAM].concat(), folder.path());
    let faults = run(&folder, &program, "symbol", "known");
    assert!(notes(&faults).contains("code without symbols"), "{faults}");
    let at_address = |row: &Value| {
        let name = row["name"].as_str().unwrap_or_default();
        name.starts_with("+0x40") && row["object"] == path
    };
    assert!(count(&faults, FIRST_WRITE, at_address) >= 10, "{faults}");
}

#[test]
fn stacks_end_with_the_kind_of_the_fault() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder, &["-g"]);
    let [folded, graph] = ["folded", "graph.svg"].map(|name| folder.path().join(name));
    let [lines, svg, path] = [&folded, &graph, &program].map(|path| path.to_str().unwrap());
    let output = memwright(&[
        "run",
        "--faults-by",
        "symbol",
        "--folded",
        lines,
        "--flamegraph",
        svg,
        path,
        "known",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let found = fs::read_to_string(&folded).unwrap();
    let expected = format!("2 faults;{path};touch_ten;[demand_zero] 10");
    assert!(found.lines().any(|line| line == expected), "{found}");
    let drawn = fs::read_to_string(&graph).unwrap();
    assert!(drawn.contains("touch_ten (10 faults"), "{drawn}");
}

/// Returns the number of faults of all kinds in the rows for which `is` returns true.
fn all(faults: &Value, is: impl Fn(&Value) -> bool) -> u64 {
    let rows = faults["rows"].as_array().unwrap().iter();
    let counts = rows.filter(|row| is(row)).map(|row| &row["faults"]);
    counts.map(|count| count.as_u64().unwrap()).sum()
}

/// Runs a part of the program on a kernel image and returns the document. Checks that the rows add up to the counts.
fn run_on(kernel: &str, folder: &TempDir, program: &Path, by: &str, part: &str) -> Value {
    let json = folder.path().join("json");
    let [file, program] = [&json, program].map(|path| path.to_str().unwrap());
    let output = memwright(&[
        "run",
        "--kernel",
        kernel,
        "--no-verify",
        "--faults-by",
        by,
        "--json",
        file,
        program,
        part,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let counted = ["user_faults", "kernel_faults"].map(|group| {
        let kinds = document["run"][group].as_object().unwrap().values();
        kinds.map(|count| count.as_u64().unwrap()).sum::<u64>()
    });
    let total: u64 = counted.iter().sum();
    if kernel != "memwright" {
        assert_eq!(all(&document["faults"], |_| true), total, "{document}");
        assert_eq!(document["faults"]["total"], total, "{document}");
    }
    document["faults"].clone()
}

#[test]
fn linux_faults_have_functions_lines_areas_and_processes() {
    const KERNEL: &str = "debian:trixie";
    if !kept::has_kernel(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder, &["-g"]);
    let run = |by, part| run_on(KERNEL, &folder, &program, by, part);
    let faults = run("symbol", "known");
    assert_eq!(count(&faults, "write", named("touch_ten")), 10, "{faults}");
    let in_library = |row: &Value| {
        let object = row["object"].as_str().unwrap_or_default();
        row["name"] == "touch_twenty" && object.ends_with("/libtouch.so")
    };
    assert_eq!(count(&faults, "write", in_library), 20, "{faults}");
    let in_read = |row: &Value| row["call"].is_string() && row["name"] == "read";
    assert_eq!(count(&faults, "kernel_write", in_read), 1, "{faults}");
    let faults = run("line", "known");
    let ten = line("faults.c", SOURCE, "ten");
    let at_ten = |row: &Value| {
        row["name"]
            .as_str()
            .is_some_and(|name| name.ends_with(&ten))
    };
    assert_eq!(count(&faults, "write", at_ten), 10, "{faults}");
    let faults = run("area", "gone");
    assert!(
        count(&faults, "write", named("[anonymous]")) >= 4,
        "{faults}"
    );
    assert_eq!(all(&faults, named("[unmapped by then]")), 0, "{faults}");
    let faults = run("symbol", "anonymous");
    assert_eq!(
        count(&faults, "write", named("[anonymous code]")),
        1,
        "{faults}"
    );
    let faults = run("symbol", "processes");
    assert_eq!(
        count(&faults, "write_protect", named("copy_five")),
        5,
        "{faults}"
    );
    assert_eq!(count(&faults, "write", named("touch_ten")), 10, "{faults}");
}

#[test]
fn causes_on_memwright_change_no_count_from_outside() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(&folder, &["-g"]);
    let faults = run_on("memwright", &folder, &program, "symbol", "known");
    assert_eq!(
        count(&faults, FIRST_WRITE, named("touch_ten")),
        10,
        "{faults}"
    );
    let json = folder.path().join("json");
    let read = || -> Value { serde_json::from_slice(&fs::read(&json).unwrap()).unwrap() };
    let with = read()["run"].clone();
    let [file, path] = [&json, &program].map(|path| path.to_str().unwrap());
    memwright(&[
        "run",
        "--kernel",
        "memwright",
        "--no-verify",
        "--json",
        file,
        path,
        "known",
    ]);
    assert_eq!(read()["run"], with);
}
