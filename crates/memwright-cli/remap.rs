//! The compiler flags that keep the paths of this machine out of the binaries. The build script and `cargo xtask dist`
//! share them.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the compiler flags that replace the paths of [`places`] in a binary. Equal sources then produce equal
/// binaries in every folder and for every user.
pub fn flags(rustc: &OsStr, workspace: &Path) -> Vec<String> {
    let flag =
        |(from, to): (PathBuf, String)| format!("--remap-path-prefix={}={to}", from.display());
    places(rustc, workspace).into_iter().map(flag).collect()
}

/// Returns the folders of the workspace, of Cargo's packages and of the standard library's source, each with the path
/// that replaces it in a binary.
pub fn places(rustc: &OsStr, workspace: &Path) -> Vec<(PathBuf, String)> {
    let mut places = vec![(workspace.to_owned(), "/memwright".to_owned())];
    places.extend(cargo_home().map(|home| (home, "/cargo".to_owned())));
    // If the component `rust-src` is installed, binaries contain the path of its copy of the source, otherwise a path
    // with the commit's hash.
    let sysroot = said(rustc, &["--print", "sysroot"]);
    let about = said(rustc, &["--version", "--verbose"]);
    let commit = about
        .lines()
        .find_map(|line| line.strip_prefix("commit-hash: "));
    if let Some(commit) = commit {
        let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
        places.push((source, format!("/rustc/{commit}")));
    }
    places
}

/// Returns the folder in which Cargo keeps packages.
fn cargo_home() -> Option<PathBuf> {
    let named = env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))
}

/// Returns what the compiler prints; empty if it cannot be started.
fn said(rustc: &OsStr, arguments: &[&str]) -> String {
    let output = Command::new(rustc).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}
