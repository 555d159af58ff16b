//! Writes the Debian package of a built command.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{licences, source};
use crate::shell;

/// The shells, each with the name and the folder of the file with its completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/memwright"),
    ("zsh", "usr/share/zsh/vendor-completions/_memwright"),
    ("fish", "usr/share/fish/vendor_completions.d/memwright.fish"),
];
/// The folder of the manual pages.
pub const MANUAL: &str = "usr/share/man/man1";
/// The folder of the built programs. Without this folder, the command would compile them.
pub const PROGRAMS: &str = "usr/lib/memwright";
/// A program that marks a region, for a first comparison.
pub const SAMPLE: &str = "usr/lib/memwright/samples/mprotect_toggle";
/// Files of the workspace that are installed as they are.
const COPIED: [(&str, &str); 3] = [
    ("include/memwright/mark.h", "usr/include/memwright/mark.h"),
    (
        "programs/lab/mprotect_toggle.c",
        "usr/share/memwright/samples/mprotect_toggle.c",
    ),
    ("plugin", "usr/share/memwright/plugin"),
];

/// Writes the package of this command into `folder`, and returns its path.
///
/// # Errors
/// If a tool is missing or fails, or I/O errors.
pub fn write(command: &Path, folder: &Path) -> Result<PathBuf> {
    let root = folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let binary = root.join("usr/bin/memwright");
    copy(command, &binary)?;
    shell::run(
        Command::new(&binary)
            .arg("prebuild")
            .arg(root.join(PROGRAMS)),
    )?;
    sample(&root.join(SAMPLE))?;
    for (from, to) in COPIED {
        copy(&source(from), &root.join(to))?;
    }
    completions(&binary, &root)?;
    manual(&binary, &root)?;
    licences::write(&root.join("usr/share/doc/memwright"))?;
    let about = root.join("DEBIAN");
    fs::create_dir_all(&about)?;
    fs::write(about.join("control"), control(size(&root)?)?)?;
    set_modes(&root)?;
    let package = folder.join(format!("memwright_{}_amd64.deb", env!("CARGO_PKG_VERSION")));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "--build"])
        .args([&root, &package])
        // Times in the package are at most that of the commit, so that equal sources give equal packages.
        .env(
            "SOURCE_DATE_EPOCH",
            shell::git(["log", "-1", "--format=%ct"])?.trim(),
        );
    shell::run(&mut dpkg)?;
    Ok(package)
}

/// Copies a file, or a folder with its files.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let context = || format!("cannot copy {}", from.display());
    fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
    if from.is_dir() {
        for entry in fs::read_dir(from).with_context(context)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    fs::copy(from, to).with_context(context)?;
    Ok(())
}

fn sample(program: &Path) -> Result<()> {
    fs::create_dir_all(program.parent().context("a file is in a folder")?)?;
    let mut compiler = Command::new("musl-gcc");
    compiler
        .current_dir(shell::root())
        .args([
            "-O2",
            "-static",
            "-Wl,--build-id=none",
            "-Iinclude/memwright",
        ])
        .args(["programs/lab/mprotect_toggle.c", "-o"])
        .arg(program);
    shell::run(&mut compiler)
}

fn completions(binary: &Path, root: &Path) -> Result<()> {
    for (name, place) in COMPLETIONS {
        let text = shell::output(Command::new(binary).args(["completions", name]));
        let place = root.join(place);
        fs::create_dir_all(place.parent().context("a file is in a folder")?)?;
        fs::write(
            place,
            text.with_context(|| format!("no completions of {name}"))? + "\n",
        )?;
    }
    Ok(())
}

fn manual(binary: &Path, root: &Path) -> Result<()> {
    let folder = root.join(MANUAL);
    shell::run(Command::new(binary).arg("manual").arg(&folder))?;
    // -n leaves out the time, so that equal pages give equal files.
    shell::run(Command::new("gzip").arg("-9n").args(files(&folder)?))
}

/// Returns the description of the package. `size` is the size of its files in KiB.
fn control(size: u64) -> Result<String> {
    let maintainer = shell::git(["log", "-1", "--format=%an <%ae>"])?;
    Ok(format!(
        "\
Package: memwright
Version: {}
Architecture: amd64
Maintainer: {}
Installed-Size: {size}
Section: devel
Priority: optional
Depends: qemu-system-x86 (>= 1:7.2)
Recommends: apt, debian-archive-keyring
Suggests: linux-perf, musl-tools
Description: counts what memory management costs on any x86-64 Linux kernel
 The command memwright runs a program on Linux kernel images under QEMU, and
 prints exact counts: page faults, TLB flushes, interprocessor interrupts, page
 tables, and instructions by kernel function. The counts are the same on every
 machine, and need no root, no KVM and no change to the kernel.
 .
 Two kernels are compared by one command. Memwright's own kernel, which runs
 unmodified Linux programs, is part of the package.
",
        env!("CARGO_PKG_VERSION"),
        maintainer.trim(),
    ))
}

/// Returns the size of the files in a folder, in KiB.
fn size(folder: &Path) -> Result<u64> {
    let mut total = 0;
    for path in files(folder)? {
        total += fs::metadata(path)?.len().div_ceil(1024);
    }
    Ok(total)
}

/// Gives every file and folder the mode that it has in a package, whatever the umask of this user is.
fn set_modes(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            set_modes(&path)?;
            continue;
        }
        let starts = fs::read(&path)?;
        let is_library = path.extension().is_some_and(|extension| extension == "so");
        let mode = match starts.starts_with(b"\x7fELF") && !is_library {
            true => 0o755,
            false => 0o644,
        };
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Returns the files in a folder and its subfolders, sorted.
///
/// # Errors
/// I/O errors.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}
