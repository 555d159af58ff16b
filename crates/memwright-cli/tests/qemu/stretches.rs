//! Tests that no program can make the kernel run for long without a scheduling point. Each long operation of
//! `programs/stretches.c` runs alone, and the account contains the longest stretch. The kernel is the shipped one,
//! because debug assertions would multiply the instructions of a stretch.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The maximum number of kernel instructions between two scheduling points.
const BOUND: u64 = 2_000_000;

/// The names of the operations that the program can execute.
const OPERATIONS: &[&str] = &[
    "munmap_areas",
    "munmap_touched_areas",
    "munmap_large",
    "munmap_sparse",
    "munmap_file_areas",
    "mprotect_areas",
    "mprotect_large",
    "madvise_areas",
    "madvise_large",
    "populate",
    "locking",
    "forking",
    "executing",
    "large_arguments",
    "moving",
    "looking",
    "showing",
    "files",
    "remote",
    "descriptors",
    "epoll_items",
    "processes",
    "folders",
    "pool",
    "merging",
    "swapping",
    "forking_from_swap",
    "showing_others",
    "passed_sockets",
    "connections",
    "naming",
    "mounts",
    "threads",
    "watching",
    "timers",
    "sleepers",
    "cpu_timers",
    "orphans",
    "zeroes",
    "sparse_file",
    "placing",
    "filling",
    "watching_areas",
    "watched_file",
    "huge_pages",
    "lock_holders",
    "semaphores",
    "nothing",
];

pub fn trials() -> Vec<Trial> {
    let of = |name: String, options: &'static [&'static str], operation: &'static str| {
        Trial::test(name, move || bounded(options, operation))
    };
    let alone = OPERATIONS.iter().map(|operation| {
        of(
            format!("stretches::{operation}"),
            &["--memory", "1G"],
            operation,
        )
    });
    let swapping = ["swapping", "populate", "forking_from_swap"];
    let swapping = swapping.iter().map(|operation| {
        let options = &["--memory", "128M", "--swap", "zram:256M"];
        of(format!("stretches::swap::{operation}"), options, operation)
    });
    let mut trials: Vec<_> = alone.chain(swapping).collect();
    trials.push(Trial::test("stretches::all_are_listed", all_are_listed));
    trials.push(Trial::test("stretches::many_objects", || {
        bounded_run(&["--memory", "1G"], &program_named("many_objects"), &[])
    }));
    trials
}

fn program() -> PathBuf {
    program_named("stretches")
}

fn program_named(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("programs/build/musl-static").join(name)
}

fn bounded(options: &[&str], operation: &str) -> Result<(), Failed> {
    bounded_run(options, &program(), &[operation])
}

/// Runs a program on the kernel as shipped. Returns an error if the program fails or if a stretch exceeds [`BOUND`].
pub fn bounded_run(options: &[&str], program: &Path, arguments: &[&str]) -> Result<(), Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["run", "--verbose", "--json", "-"])
        .args(options)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {told}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let start = text.find('{').ok_or("no account")?;
    let document: Value = serde_json::from_str(&text[start..])?;
    let longest = document["account"]["instructions_stretch"].as_u64();
    match longest {
        Some(longest) if longest <= BOUND => Ok(()),
        _ => Err(format!("a stretch of {longest:?} instructions: {told}").into()),
    }
}

/// Checks that [`OPERATIONS`] equals the list of operations that the program prints on the host.
fn all_are_listed() -> Result<(), Failed> {
    let output = Command::new(program()).arg("list").output()?;
    let known = String::from_utf8(output.stdout)?;
    if known.lines().eq(OPERATIONS.iter().copied()) {
        Ok(())
    } else {
        Err(format!("the program knows other operations:\n{known}").into())
    }
}
