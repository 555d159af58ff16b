//! Tests the tutorial: compiles its program, and runs its commands exactly as printed.

mod skipped;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TUTORIAL: &str = include_str!("../../../docs/tutorial.md");

/// Returns the C program of the tutorial.
fn program() -> &'static str {
    let (_, rest) = TUTORIAL.split_once("```c\n").unwrap();
    rest.split_once("```").unwrap().0
}

/// Returns the commands that the reader of the tutorial types.
fn commands() -> Vec<&'static str> {
    let (before, rest) = TUTORIAL.split_once("```c\n").unwrap();
    let (_, after) = rest.split_once("```").unwrap();
    // The text between two code fences is output, and is skipped.
    let after = after.split("```").step_by(2).flat_map(str::lines);
    let lines = before.lines().chain(after);
    lines.filter_map(|line| line.strip_prefix("    ")).collect()
}

/// Returns the path of Debian's image if it is in the cache.
fn image() -> Option<PathBuf> {
    let line = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["run", "--kernel", "debian:trixie", "--dry-run", "/bin/true"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let line = String::from_utf8(line.stdout).unwrap();
    let mut words = line
        .split_whitespace()
        .skip_while(|word| *word != "-kernel");
    words.nth(1).map(PathBuf::from)
}

#[test]
fn every_command_of_the_tutorial_works() {
    let commands = commands();
    assert!(commands.len() >= 5, "{commands:?}");
    let Some(image) = image() else {
        skipped::skipped("no kernel image: memwright kernels add debian:trixie");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    symlink(repository.join("include"), folder.path().join("include")).unwrap();
    fs::write(folder.path().join("prog.c"), program()).unwrap();
    for name in ["old", "new", "next"] {
        fs::copy(&image, folder.path().join(format!("bzImage.{name}"))).unwrap();
    }
    let tools = folder.path().join("bin");
    fs::create_dir(&tools).unwrap();
    symlink(env!("CARGO_BIN_EXE_memwright"), tools.join("memwright")).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths([tools].into_iter().chain(std::env::split_paths(&path)));
    let path = path.unwrap();
    for command in commands {
        let output = Command::new("sh")
            .args(["-c", command])
            .env("PATH", &path)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{command}: {said}");
    }
    let table = fs::read_to_string(folder.path().join("table.txt")).unwrap();
    // The images of both columns are copies of one kernel.
    assert!(table.contains("none of 64 rows changed."), "{table}");
    assert!(table.contains("repeats"), "{table}");
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("user, write-protect"));
}
