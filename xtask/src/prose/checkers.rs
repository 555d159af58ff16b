//! The checkers typos and Vale. Each is built once, in the cache, from the package registry of its language.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::apt::{self, Archive};
use crate::{install, shell, tools};

/// The version of the crate typos-cli that is used.
const TYPOS: &str = "1.39.0";
/// The Go module of Vale, and the version that is used.
const VALE: (&str, &str) = ("github.com/vale-cli/vale/v3/cmd/vale", "3.21.0");
/// The oldest version of Go that compiles Vale.
const GO: [u32; 3] = [1, 25, 7];
/// Debian's packages of a version of Go that compiles Vale. They are in the suite `GO_SUITE`.
const GO_PACKAGES: [&str; 2] = ["golang-1.25-go", "golang-1.25-src"];
const GO_SUITE: &str = "trixie-backports";
/// The folder of Go in these packages.
const GO_ROOT: &str = "usr/lib/go-1.25";

/// Returns the path of typos. Builds typos first if it is not in the cache.
///
/// # Errors
/// If typos cannot be built.
pub fn typos() -> Result<PathBuf> {
    let package = ("typos-cli", TYPOS);
    tools::of_crates_io(package, "typos", "about 3 minutes on two cores")
}

/// Returns the path of Vale. Builds Vale first if it is not in the cache.
///
/// # Errors
/// If Vale cannot be built: Go is not installed and cannot be fetched from Debian's archive, or Go's module proxy is
/// not reachable.
pub fn vale() -> Result<PathBuf> {
    let (module, version) = VALE;
    let name = format!("vale-{version}");
    tools::cached(&name, "vale", "about 2 minutes on two cores", |work| {
        let go = go()?;
        // Vale needs a C compiler for its grammars of programming languages.
        install::install_packages(&[install::GCC])?;
        let mut install = Command::new(go);
        install
            .arg("install")
            .arg(format!("{module}@v{version}"))
            .env("GOBIN", work)
            .env("GOPATH", work.join("go"))
            .env("GOCACHE", work.join("go/cache"))
            .env("GOFLAGS", "-modcacherw")
            .env("CGO_CFLAGS", "-O1 -w");
        let proxy =
            "Go's module proxy is not reachable from here (GOPROXY), or Vale does not build";
        shell::run(&mut install).context(proxy)?;
        Ok(fs::remove_dir_all(work.join("go"))?)
    })
}

/// Returns the path of a version of Go that is new enough: the installed one, or Debian's, which is unpacked into the
/// cache.
fn go() -> Result<PathBuf> {
    let installed = shell::which("go");
    let version = |go: &PathBuf| shell::output(Command::new(go).arg("version"));
    if let Some(go) = &installed
        && version(go).is_some_and(|text| is_new_enough(&text))
    {
        return Ok(go.clone());
    }
    let folder = apt::cache_folder("tools")?.join(GO_PACKAGES[0]);
    let go = folder.join(GO_ROOT).join("bin/go");
    if go.exists() {
        return Ok(go);
    }
    let [major, minor, patch] = GO;
    let need = format!("Vale needs Go {major}.{minor}.{patch} or later");
    shell::step(&format!(
        "{need}: unpacking Debian's into {}",
        folder.display()
    ));
    let work = folder.with_extension(std::process::id().to_string());
    let unpack = || -> Result<()> {
        let archive = Archive::open(work.join("apt"), &[GO_SUITE])?;
        for package in GO_PACKAGES {
            let version = archive.newest(package)?;
            archive.unpack(package, &version, &work)?;
        }
        fs::remove_dir_all(work.join("apt"))?;
        fs::rename(&work, &folder)?;
        Ok(())
    };
    let unpacked = unpack();
    if unpacked.is_err() {
        let _ = fs::remove_dir_all(&work);
    }
    unpacked.with_context(|| format!("{need}, and Debian's {GO_SUITE} does not give one"))?;
    Ok(go)
}

/// Returns whether the version of Go in the output of `go version` compiles Vale.
fn is_new_enough(text: &str) -> bool {
    let Some(numbers) = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go1."))
    else {
        return false;
    };
    let mut numbers = numbers.split('.').map(|number| number.parse().unwrap_or(0));
    [1, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)] >= GO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_compared() {
        for (text, expected) in [
            ("go version go1.26.8 linux/amd64", true),
            ("go version go1.25.7 linux/amd64", true),
            ("go version go1.25.6 linux/amd64", false),
            ("go version go1.26rc1 linux/amd64", false),
            ("go version go1.19.8 linux/amd64", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(text), expected, "{text}");
        }
    }
}
