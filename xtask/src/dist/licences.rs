//! Writes the licences of the files and libraries in the package.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::source;
use crate::shell;

/// The licences of the files of this repository.
const OWN: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Memwright

Files: *
Copyright: 2026 The Memwright developers
License: MIT or Apache-2.0

Files: usr/lib/memwright/plugin/* usr/share/memwright/plugin/*
Copyright: 2026 The Memwright developers
License: GPL-2.0-or-later
 The plugin counts in QEMU, which loads it. Its source is in
 usr/share/memwright/plugin.

Files: usr/bin/memwright
Copyright: 2026 The Memwright developers, and those of its libraries
License: MIT or Apache-2.0, and others
 The licences of the libraries are in /usr/share/doc/memwright/libraries.gz.

License: Apache-2.0
 See /usr/share/common-licenses/Apache-2.0.

License: GPL-2.0-or-later
 See /usr/share/common-licenses/GPL-2.

License: MIT
";

/// The text before the licences of the libraries.
const OTHERS: &str = "\
The programs of this package are linked with musl, whose licence is MIT (https://musl.libc.org). The command and the
kernel in it are linked with the Rust standard library (MIT or Apache-2.0, https://www.rust-lang.org) and with the
packages of https://crates.io that follow, which have their source there. Each has its licence and its notices below.
";

/// Writes the files `copyright` and `libraries.gz` into the folder of the package's documentation.
///
/// # Errors
/// If cargo cannot list the packages, or I/O errors.
pub fn write(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mit = fs::read_to_string(source("LICENSE-MIT"))?;
    let lines = mit.trim().lines().map(|line| match line {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    });
    let copyright = OWN.to_owned() + &lines.collect::<String>();
    fs::write(folder.join("copyright"), copyright)?;
    let path = folder.join("libraries");
    fs::write(&path, libraries()?)?;
    shell::run(Command::new("gzip").arg("-9n").arg(path))
}

/// Returns the licences of the packages that the command and its kernel are linked with.
fn libraries() -> Result<String> {
    let mut metadata = shell::cargo(["metadata", "--locked", "--format-version", "1"]);
    let text = shell::output(&mut metadata).context("cargo lists no packages")?;
    let metadata: Value = serde_json::from_str(&text)?;
    let used = linked()?;
    let mut text = OTHERS.to_owned();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        let name = format!("{} {}", field("name"), field("version"));
        if package["source"].is_null() || !used.contains(&name) {
            continue;
        }
        write!(text, "\n=== {name}: {}\n", field("license"))?;
        for path in notices(Path::new(&field("manifest_path")))? {
            let notice = fs::read(&path)?;
            write!(text, "\n{}\n", String::from_utf8_lossy(&notice).trim())?;
        }
    }
    Ok(text)
}

/// Returns the packages that are linked, each as its name and version.
fn linked() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for package in ["memwright-cli", "memwright-kernel"] {
        let mut tree = shell::cargo(["tree", "--locked", "-e", "normal", "--prefix", "none"]);
        tree.args(["-f", "{p}", "-p", package]);
        let text = shell::output(&mut tree).context("cargo prints no tree of packages")?;
        let names = text.lines().filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            let version = rest.split_whitespace().next()?;
            Some(format!("{name} {version}"))
        });
        found.extend(names);
    }
    Ok(found)
}

/// Returns the files with the licence and the notices of a package, sorted.
fn notices(manifest: &Path) -> Result<Vec<PathBuf>> {
    let folder = manifest.parent().context("a manifest is in a folder")?;
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let begins = [
            "LICENSE",
            "LICENCE",
            "COPYING",
            "COPYRIGHT",
            "NOTICE",
            "UNLICENSE",
        ];
        let is_notice = begins.iter().any(|begin| name.starts_with(begin));
        if is_notice && entry.path().is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
