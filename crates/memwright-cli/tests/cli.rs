//! Tests the command line as users see it: help, usage errors, bad input, and the QEMU command line.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn transcripts() {
    trycmd::TestCases::new()
        .env("MEMWRIGHT_QEMU", "qemu-system-x86_64")
        .case("tests/cmd/*.trycmd");
}

/// If the package of a workload is missing, the error names it and the command that installs it, before a program runs.
/// The package manager is a stand-in, so that the test does not depend on the installed packages.
#[test]
fn a_missing_package_is_named() {
    for (workload, installed, line) in [
        (
            "sqlite-wal",
            "",
            "memwright: sqlite-wal needs the package sqlite3, which is not installed: apt-get install sqlite3\n",
        ),
        (
            "larson-jemalloc",
            "gcc",
            "memwright: larson-jemalloc needs the package libjemalloc2, which is not installed: \
             apt-get install libjemalloc2\n",
        ),
        (
            "larson-jemalloc",
            "",
            "memwright: larson-jemalloc needs the packages gcc and libjemalloc2, which are not installed: \
             apt-get install gcc libjemalloc2\n",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let query = folder.path().join("dpkg-query");
        let script =
            format!("#!/bin/sh\n[ \"$4\" = '{installed}' ] && printf installed && exit\nexit 1\n");
        fs::write(&query, script).unwrap();
        fs::set_permissions(&query, Permissions::from_mode(0o755)).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
            .args(["bench", workload, "--no-verify"])
            .env("PATH", folder.path())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), line);
        assert_eq!(output.status.code(), Some(3));
        assert!(output.stdout.is_empty());
    }
}
