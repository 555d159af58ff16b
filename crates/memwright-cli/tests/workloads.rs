//! Runs the workloads of `memwright bench`, which are complete programs, on Memwright and on Debian's kernel. Compares
//! the output and the marks of the two runs.
//!
//! A workload whose program is not installed is reported as skipped. `cargo xtask workloads` also counts, and writes
//! `docs/programs.md`.

mod skipped;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

use skipped::skipped;

/// The kernel of the second column. Other tests use this kernel too, so no other image is needed.
const LINUX: &str = "debian:trixie";

fn main() {
    let mut arguments = Arguments::from_args();
    // Each guest needs a gigabyte of memory, so only one test runs at a time by default.
    if arguments.test_threads.is_none() {
        arguments.test_threads = Some(1);
    }
    let mut scripts: Vec<PathBuf> = fs::read_dir(workspace().join("programs/workloads"))
        .expect("there are scripts")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension() == Some("sh".as_ref()))
        .collect();
    scripts.sort();
    let trials = scripts.into_iter().map(|path| {
        let name = path.file_stem().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        Trial::test(name.clone(), move || same_output(&name, &path))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .ancestors()
        .nth(2)
        .expect("the package is in the workspace")
}

/// Checks that a script succeeds on both kernels with equal output, and that each region that it marks has one pass.
fn same_output(name: &str, path: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let packages = text
        .lines()
        .find_map(|line| line.strip_prefix("# package: "));
    let packages = packages.ok_or("the script names no packages")?;
    for package in packages.split_ascii_whitespace() {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f", "${db:Status-Status}", package]);
        let installed = query
            .output()
            .is_ok_and(|output| output.stdout == b"installed");
        if !installed {
            skipped(&format!("{name} needs the package {package}"));
            return Ok(());
        }
    }
    let mut dry = Command::new(env!("CARGO_BIN_EXE_memwright"));
    dry.args([
        "run",
        "--no-verify",
        "--kernel",
        LINUX,
        "--dry-run",
        "/bin/true",
    ]);
    if !dry.output()?.status.success() {
        skipped(&format!("no kernel image: memwright kernels add {LINUX}"));
        return Ok(());
    }
    let marked = text.matches(" begin ").count();
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command
        .args(["bench", name, "--no-verify", "--kernel", "memwright"])
        .args(["--kernel", &format!("linux={LINUX}"), "--json"])
        .arg(&json)
        // The command contains the scripts and their data, so it can run in any folder.
        .current_dir(folder.path())
        .stdin(Stdio::null());
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let document: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap_or_default())
        .map_err(|_| format!("no document: {errors}"))?;
    let columns = document["points"][0]["columns"].as_array();
    let columns = columns.ok_or("no columns")?;
    let [own, linux] = columns.as_slice() else {
        return Err(format!("{} columns", columns.len()).into());
    };
    for column in columns {
        if column["outcome"]["exited"] != 0 {
            return Err(format!("{}: {}", column["kernel"]["version"], column["outcome"]).into());
        }
        let regions = column["regions"].as_array().ok_or("no regions")?;
        let passes: Vec<_> = regions.iter().map(|one| &one["passes"]).collect();
        if passes != vec![1; marked] {
            return Err(format!("passes of the regions: {passes:?}, {marked} expected").into());
        }
    }
    match own["output_sha256"] == linux["output_sha256"] {
        true => Ok(()),
        false => Err("its output differs".into()),
    }
}
