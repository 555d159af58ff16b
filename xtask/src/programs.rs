//! Builds the C programs of `programs/`, each of which is one source file, in every variant. Builds the Go program,
//! too, if Go is installed.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A variant of the build: a compiler, its flags, and the output folder in `programs/build`.
struct Variant {
    folder: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
}

const VARIANTS: &[Variant] = &[
    Variant {
        folder: "glibc-static",
        compiler: "gcc",
        flags: &["-static", "-no-pie"],
    },
    Variant {
        folder: "musl-static",
        compiler: "musl-gcc",
        // musl has no copy of the kernel headers, so those of the system are used.
        flags: &[
            "-static",
            "-no-pie",
            "-idirafter",
            "/usr/include",
            "-idirafter",
            "/usr/include/x86_64-linux-gnu",
        ],
    },
    Variant {
        folder: "static-pie",
        compiler: "gcc",
        flags: &["-static-pie", "-fPIE"],
    },
    Variant {
        folder: "dynamic",
        compiler: "gcc",
        flags: &["-pie", "-fPIE"],
    },
];

/// The flags of every program. The programs pass wrong arguments on purpose, so the warnings about these are disabled.
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-nonnull",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
    "-Wno-array-bounds",
    "-Wno-format-truncation",
];

/// The variants in which tests use programs by their paths. A test that uses a program in another variant has the
/// variant in its name.
const BY_PATH: &[&str] = &["glibc-static", "musl-static"];

/// The program that starts the other programs of a boot. It is always of the same variant as the programs that it
/// starts.
const STARTER: &str = "suite";

/// A program that a test uses by its path although its variant is not in [`BY_PATH`].
const ALSO: (&str, &str) = ("dynamic", "hello");

/// Builds every program that is older than its source, in every variant.
///
/// # Errors
/// If a compiler is missing or rejects a program.
pub fn build_all() -> Result<()> {
    build_where(|_, _| true)
}

/// Like [`build_all`], but builds only the programs that tests with these names can use. If each test runs in one
/// variant, this omits a quarter of the programs.
///
/// # Errors
/// As for [`build_all`].
pub fn build_for<'a>(tests: impl Iterator<Item = &'a str>) -> Result<()> {
    let named: BTreeSet<(&str, &str)> = tests.flat_map(pairs).collect();
    build_where(|variant, name| is_used(variant, name, &named))
}

/// Returns whether a test can use the program `name` of `variant`. `named` contains the variants and programs that
/// occur in the names of the tests.
fn is_used(variant: &str, name: &str, named: &BTreeSet<(&str, &str)>) -> bool {
    BY_PATH.contains(&variant)
        || name == STARTER
        || (variant, name) == ALSO
        || named.contains(&(variant, name))
}

/// Returns pairs of each part of a test's name and the last part. If the first of a pair is a variant, the last part is
/// a program.
fn pairs(test: &str) -> impl Iterator<Item = (&str, &str)> {
    let last = test.rsplit("::").next().unwrap_or(test);
    test.split("::").map(move |part| (part, last))
}

/// Builds every program that is older than its source and for whose variant and name `is_wanted` returns true.
fn build_where(is_wanted: impl Fn(&str, &str) -> bool) -> Result<()> {
    let folder = shell::root().join("programs");
    build_go(&folder)?;
    let mut sources = Vec::new();
    let mut headers = Vec::new();
    for entry in
        std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("c") => sources.push(path),
            Some("h") => headers.push(path),
            Some(_) | None => {}
        }
    }
    sources.sort();
    let newest_header = headers
        .iter()
        .map(|header| modified(header))
        .max()
        .flatten();
    let mut jobs = Vec::new();
    for variant in VARIANTS {
        let output = folder.join("build").join(variant.folder);
        std::fs::create_dir_all(&output)?;
        for source in &sources {
            let name = source.file_stem().unwrap_or_default();
            if !name
                .to_str()
                .is_some_and(|name| is_wanted(variant.folder, name))
            {
                continue;
            }
            let program = output.join(name);
            let newest = modified(source).max(newest_header).max(own_headers(source));
            if modified(&program).is_none_or(|built| Some(built) < newest) {
                jobs.push((variant, source.clone(), program));
            }
        }
    }
    if jobs.is_empty() {
        return Ok(());
    }
    shell::step(&format!(
        "building {} programs into programs/build",
        jobs.len()
    ));
    build(&jobs)
}

/// Returns the modification time of the newest of the program's own headers, which are in a folder with the name of the
/// program. `None` if there is no such folder.
fn own_headers(source: &Path) -> Option<SystemTime> {
    let files = std::fs::read_dir(source.with_extension("")).ok()?;
    files
        .flatten()
        .filter_map(|file| modified(&file.path()))
        .max()
}

/// Builds `programs/go`, statically linked. If Go is not installed, builds nothing; the test that needs the program
/// then reports that it is skipped.
fn build_go(folder: &Path) -> Result<()> {
    let source = folder.join("go/main.go");
    let program = folder.join("build/go/heap");
    let usual = PathBuf::from("/usr/local/go/bin/go");
    let Some(go) = shell::which("go").or_else(|| usual.is_file().then_some(usual)) else {
        return Ok(());
    };
    if modified(&program).is_some_and(|built| Some(built) >= modified(&source)) {
        return Ok(());
    }
    let mut command = Command::new(go);
    command
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(folder.join("go"));
    // These variables prevent downloads and effects of the user's settings.
    for (name, value) in [
        ("CGO_ENABLED", "0"),
        ("GOTOOLCHAIN", "local"),
        ("GOPROXY", "off"),
        ("GOFLAGS", ""),
        ("GOWORK", "off"),
    ] {
        command.env(name, value);
    }
    shell::run(&mut command)
}

fn build(jobs: &[(&Variant, PathBuf, PathBuf)]) -> Result<()> {
    let width = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for batch in jobs.chunks(width) {
        let mut children = Vec::new();
        for (variant, source, program) in batch {
            // The compiler writes to a temporary name, because a partially written program must not appear newer than
            // its source.
            let partial = program.with_extension("partial");
            let mut command = Command::new(variant.compiler);
            command
                .args(FLAGS)
                // Some programs include headers of the experiments.
                .arg("-I")
                .arg(shell::root().join("programs/experiments"))
                .args(variant.flags)
                .arg("-o")
                .arg(&partial)
                .arg(source);
            let child = command
                .spawn()
                .with_context(|| format!("cannot start {}", variant.compiler))?;
            children.push((child, command, partial, program));
        }
        let mut failed = None;
        for (mut child, command, partial, program) in children {
            if child.wait()?.success() {
                std::fs::rename(partial, program)?;
            } else {
                failed = Some(shell::line(&command));
            }
        }
        if let Some(line) = failed {
            bail!("`{line}` failed");
        }
    }
    Ok(())
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata()
        .and_then(|metadata| metadata.modified())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_in_a_tests_name_builds_the_program() {
        let named =
            pairs("programs::static-pie::files").chain(pairs("cpus::glibc-static::on_4::cow"));
        let named: BTreeSet<(&str, &str)> = named.collect();
        for (variant, name, used) in [
            ("static-pie", "files", true),
            ("dynamic", "files", false),
            ("static-pie", "cow", false),
            ("glibc-static", "cow", true),
            ("musl-static", "cow", true),
            ("dynamic", "hello", true),
            ("dynamic", "suite", true),
        ] {
            assert_eq!(is_used(variant, name, &named), used, "{variant} {name}");
        }
    }
}
