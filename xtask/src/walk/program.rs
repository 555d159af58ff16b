//! The programs that perform the operations, built so that each call is one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::shell;

/// Flags that keep every function: without the passes of LLVM not even `#[inline(always)]` inlines one. Names are mangled
/// in the one way that a later compiler cannot change.
pub const FLAGS: &[&str] = &["-Cno-prepopulate-passes", "-Csymbol-mangling-version=v0"];

/// The profile. Debug assertions are off, as in the kernel's image.
const PROFILE: &[&str] = &[
    "profile.dev.opt-level=0",
    "profile.dev.debug=\"line-tables-only\"",
    "profile.dev.debug-assertions=false",
];

/// A program that performs an operation.
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<String>,
    /// Returns whether the function with this name contains the operation.
    pub begins: fn(&str) -> bool,
}

/// Builds the program of an operation from the source in `tree`.
///
/// # Errors
/// It does not build.
pub fn build(tree: &Path, name: &str) -> Result<Program> {
    let folder = if tree == shell::root() {
        shell::target_folder().join("walk")
    } else {
        tree.join("target/walk")
    };
    shell::run(command(tree, &folder).args(["-p", "memwright-sim", "--example", "walk"]))?;
    Ok(Program {
        path: folder.join("debug/examples/walk"),
        arguments: vec![name.to_owned()],
        begins: |path| path.starts_with("walk::operation"),
    })
}

fn command(tree: &Path, folder: &Path) -> Command {
    let mut command = shell::cargo(["build", "-q", "--locked"]);
    command.current_dir(tree).arg("--target-dir").arg(folder);
    for setting in PROFILE {
        command.args(["--config", setting]);
    }
    for name in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    command
}
