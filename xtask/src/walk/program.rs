//! The programs that perform the operations, built without inlining.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::shell;

/// Flags that prevent inlining: without the passes of LLVM, even `#[inline(always)]` has no effect. The v0 mangling is
/// stable across compiler versions.
pub const FLAGS: &[&str] = &["-Cno-prepopulate-passes", "-Csymbol-mangling-version=v0"];

/// The settings of the profile. Debug assertions are off, as in the kernel's image. Only functions of this workspace
/// need line tables.
const PROFILE: &[&str] = &[
    "profile.dev.opt-level=0",
    "profile.dev.debug=\"line-tables-only\"",
    "profile.dev.debug-assertions=false",
    "profile.dev.package.'*'.debug=false",
];

/// The folder with the accounts that the operation `compare` reads.
const ACCOUNTS: &str = "xtask/walks";

/// A program that performs an operation.
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<String>,
    /// A predicate for the path of the function that contains the operation.
    pub begins: fn(&str) -> bool,
}

impl Program {
    /// Returns the program for an operation that [`build`] builds from the source in `tree`.
    pub fn of(tree: &Path, name: &str) -> Self {
        let folder = folder(tree).join("debug");
        if is_on_memory(name) {
            return Self {
                path: folder.join("examples/walk"),
                arguments: vec![name.to_owned()],
                begins: |path| path.starts_with("walk::operation"),
            };
        }
        let account = |name| {
            let path = tree.join(ACCOUNTS).join(name);
            path.to_string_lossy().into_owned()
        };
        let report = "report".to_owned();
        Self {
            path: folder.join("memwright"),
            arguments: vec![report, account("before.json"), account("after.json")],
            begins: |path| path == "memwright::main",
        }
    }
}

/// Returns whether an operation belongs to the memory manager, and not to the command.
fn is_on_memory(name: &str) -> bool {
    name != "compare"
}

/// Returns the folder into which cargo builds the programs.
fn folder(tree: &Path) -> PathBuf {
    if tree == shell::root() {
        shell::target_folder().join("walk")
    } else {
        tree.join("target/walk")
    }
}

/// Builds the programs of these operations from the source in `tree`, in one build, so that they share artifacts.
///
/// # Errors
/// If a program does not build.
pub fn build(tree: &Path, names: &[&str]) -> Result<()> {
    let mut command = command(tree);
    if names.iter().any(|name| is_on_memory(name)) {
        command.args(["-p", "memwright-sim"]);
        command.args(["--example", "walk"]);
    }
    if names.iter().any(|name| !is_on_memory(name)) {
        command.args(["-p", "memwright-cli", "--bin", "memwright"]);
    }
    shell::run(&mut command)
}

fn command(tree: &Path) -> Command {
    let mut command = shell::cargo(["build", "-q", "--locked"]);
    command
        .current_dir(tree)
        .arg("--target-dir")
        .arg(folder(tree));
    for setting in PROFILE {
        command.args(["--config", setting]);
    }
    for name in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(name);
    }
    // The traced command boots no kernel, so the kernel need not be built.
    command.env("MEMWRIGHT_BUILD_KERNEL", "0");
    command.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    command
}
