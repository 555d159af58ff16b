//! Tests `memwright run` with `programs/lab/alone`, a kernel that is not Linux. It is booted by PVH and by multiboot.
//! Its instructions were counted by hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const FAULTS: u64 = 7;
const FLUSHES: u64 = 5;

/// Assembles the kernel with these symbols defined. Returns the path of its image.
fn kernel(folder: &TempDir, name: &str, definitions: &[&str]) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/lab/alone");
    let image = folder.path().join(name);
    let output = Command::new("gcc")
        .args(["-static", "-nostdlib", "-Wl,--build-id=none"])
        .args(["-Wl,--no-warn-rwx-segments", "-Wl,-T"])
        .arg(sources.join("alone.ld"))
        .args([format!("-DFAULTS={FAULTS}"), format!("-DFLUSHES={FLUSHES}")])
        .args(definitions)
        .arg("-o")
        .args([&image, &sources.join("alone.S")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    image
}

fn memwright(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command.args(words).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a kernel with these options, and returns the output and the document.
fn run(image: &Path, options: &[&str]) -> (Output, Value) {
    let json = image.with_extension("json");
    let words = [
        "run",
        "--kernel",
        image.to_str().unwrap(),
        "--json",
        json.to_str().unwrap(),
    ];
    let output = memwright(&[&words, options].concat());
    let document = fs::read(&json).unwrap();
    let document =
        serde_json::from_slice(&document).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    (output, document)
}

/// Returns the number of instructions of the marked region, by the rule at the top of alone.S.
fn instructions(faults: u64, flushes: u64) -> u64 {
    6 + (3 + 4 * faults) + 11 * faults + (3 + 4 * flushes)
}

/// The region has the counts that were counted by hand, for each boot protocol and for each way in which the kernel
/// ends. A second run has the same counts in the region and outside it.
#[test]
fn a_kernel_counted_by_hand_has_these_counts() {
    let folder = tempfile::tempdir().unwrap();
    let expected = json!({
        "user_faults": {"read": 0, "write": 0, "fetch": 0, "write_protect": 0, "refused": 0},
        "kernel_faults": {"read": 0, "write": FAULTS, "fetch": 0, "write_protect": 0, "refused": 0},
        "full_flushes": 1, "switches": 0, "cr4_writes": 0, "invlpg": FLUSHES, "invpcid": 0, "other_interrupts": 0,
        "instructions": {"user": 0, "kernel": instructions(FAULTS, FLUSHES)}
    });
    for (definitions, code, version) in [
        (&["-DSTATUS=5"][..], 5, "booted by its PVH note"),
        (&["-DSTATUS=0", "-DMULTIBOOT"], 0, "booted by multiboot 1"),
        (&["-DPOWEROFF"], 0, "booted by its PVH note"),
    ] {
        let image = kernel(&folder, "kernel", definitions);
        let (output, document) = run(&image, &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{definitions:?}: {said}");
        assert_eq!(text(&output.stdout), "counted by hand\n", "{definitions:?}");
        assert_eq!(
            document["repeats"], true,
            "{definitions:?}: {}",
            document["differs"]
        );
        assert_eq!(document["outcome"], json!({"exited": code}));
        assert_eq!(document["kernel"]["version"], version);
        assert_eq!(
            document["regions"][0]["counts"], expected,
            "{definitions:?}"
        );
        // The command cannot determine how these kernels use page tables and call-function interrupts, so the document
        // has no values for them.
        assert_eq!(document["regions"][0].get("at_end"), None);
        assert_eq!(document["run"].get("call_interrupts"), None);
        assert_eq!(document.get("program"), None);
    }
    let image = folder.path().join("kernel");
    let file = image.with_extension("json");
    let output = memwright(&["report", "--all", file.to_str().unwrap()]);
    let table = text(&output.stdout);
    let line = table
        .lines()
        .find(|line| line.contains("call-function interrupts"));
    assert!(line.unwrap().ends_with("not observable"), "{table}");
}

/// The instructions of the functions add up to the instructions of the region, and each function has the number of
/// calls that was counted by hand.
#[test]
fn functions_are_those_of_the_symbol_table() {
    let folder = tempfile::tempdir().unwrap();
    let image = kernel(&folder, "kernel", &[]);
    let options = ["--functions", "--region", "1", "--no-verify"];
    let (output, document) = run(&image, &options);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let profile = &document["functions"];
    let names = profile["functions"].as_array().unwrap();
    let mut found: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for call in profile["calls"].as_array().unwrap() {
        let number = |name: &str| call[name].as_u64().unwrap();
        let name = names[number("function") as usize].as_str().unwrap();
        let (own, count) = found.entry(name).or_default();
        *own += number("instructions");
        *count += number("count");
    }
    let expected = [
        ("fill", (3 + 4 * FAULTS, 1)),
        ("flush", (3 + 4 * FLUSHES, 1)),
        ("long_mode", (6, 0)),
        ("page_fault", (11 * FAULTS, FAULTS)),
    ];
    assert_eq!(found, BTreeMap::from(expected), "{profile}");
    assert_eq!(profile["total"], instructions(FAULTS, FLUSHES));
    assert_eq!(profile["mismatches"], 0);

    let stripped = folder.path().join("stripped");
    let status = Command::new("strip")
        .arg("-o")
        .args([&stripped, &image])
        .status();
    assert!(status.unwrap().success());
    let (output, document) = run(&stripped, &options);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("has no symbol table (.symtab): all is unattributed"),
        "{said}"
    );
    assert_eq!(
        document["functions"]["functions"],
        json!(["[unattributed]"])
    );
}

/// `compare` and `check` also accept kernels that are not Linux.
#[test]
fn two_kernels_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (
        kernel(&folder, "before", &[]),
        kernel(&folder, "after", &["-DFAULTS=9"]),
    );
    let [before, after] = [&before, &after].map(|path| path.to_str().unwrap());
    let json = folder.path().join("json");
    let output = memwright(&[
        "compare",
        "--kernel",
        before,
        "--kernel",
        after,
        "--rows",
        "region.1.*",
        "--csv",
        json.to_str().unwrap(),
    ]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}{errors}");
    let csv = fs::read_to_string(&json).unwrap();
    for (column, faults) in [("before", FAULTS), ("after", 9)] {
        for (row, count) in [
            ("region.1.kernel_faults.write", faults),
            (
                "region.1.instructions.kernel",
                instructions(faults, FLUSHES),
            ),
        ] {
            let found = csv
                .lines()
                .find(|line| line.starts_with(row) && line.contains(&format!(",{column},")));
            assert!(found.unwrap().ends_with(&format!(",{count}")), "{csv}");
        }
    }
    for (limit, code) in [(9, 0), (8, 1)] {
        let limit = format!("region.1.kernel_faults.write={limit}");
        let output = memwright(&["check", "--no-verify", "--kernel", after, "--limit", &limit]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    }
}

#[test]
fn what_cannot_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = kernel(&folder, "kernel", &[]);
    let [hang, triple] =
        ["HANG", "TRIPLE"].map(|name| kernel(&folder, name, &[&format!("-D{name}")]));
    let plain = folder.path().join("plain");
    fs::copy("/bin/true", &plain).unwrap();
    for (image, options, code, said) in [
        (&plain, &[][..], 125, "no other kernel that QEMU boots"),
        (
            &image,
            &["/bin/true"],
            125,
            "/bin/true: a kernel that is not Linux runs no PROGRAM",
        ),
        (
            &image,
            &["--thp", "always"],
            125,
            "--thp: a kernel that is not Linux boots alone",
        ),
        (
            &image,
            &["--cpus", "2"],
            125,
            "a kernel that is not Linux is counted with one CPU, and this guest has 2",
        ),
        (&image, &["--functions"], 125, "--region N"),
        (&hang, &["--timeout", "3"], 124, "--timeout expired"),
        (&triple, &[], 125, "the kernel ended in a triple fault"),
    ] {
        let words = ["run", "--no-verify", "--kernel", image.to_str().unwrap()];
        let output = memwright(&[&words, options].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {errors}");
        assert!(errors.contains(said), "{options:?}: {errors}");
    }
    let output = memwright(&["run", "--kernel", "memwright"]);
    assert!(
        text(&output.stderr).contains("PROGRAM is missing"),
        "{}",
        text(&output.stderr)
    );
}
