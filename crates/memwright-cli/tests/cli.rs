//! Tests the command line as users see it: help, usage errors, bad input, and the QEMU command line.

use std::fs::{self, File, Permissions};
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

/// What is not a configuration is refused at once, without reading it to its end.
#[test]
fn hostile_configurations_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    File::create(at("large")).unwrap().set_len(1 << 30).unwrap();
    fs::create_dir_all(at("tree/.config")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    for (name, reason) in [
        ("pipe", "pipe: is a named pipe, not a regular file\n"),
        ("large", "large: is larger than 64 MiB\n"),
        ("tree", "tree/.config: is a folder, not a regular file\n"),
        (
            "empty",
            "empty/.config: No such file or directory (os error 2)\n",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
            .args(["kernels", "config"])
            .arg(at(name))
            .output()
            .unwrap();
        let expected = format!("memwright: {}/{reason}", folder.path().display());
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
    }
}

/// A tree whose configuration lacks what every run needs is added with a warning. Its image is a boot header.
#[test]
fn a_tree_that_lacks_options_is_added_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let image = tree.join("arch/x86/boot/bzImage");
    fs::create_dir_all(image.parent().unwrap()).unwrap();
    let mut bytes = vec![0; 0x400];
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    fs::write(image, bytes).unwrap();
    let complete = include_str!("cmd/kernels-config.in/complete.config");
    let lacks_tty = format!("{complete}# CONFIG_TTY is not set\n");
    for (configuration, warning) in [
        (Some(complete), ""),
        (
            Some(&*lacks_tty),
            "memwright: own: its configuration lacks what every run needs: CONFIG_TTY (memwright kernels config own)\n",
        ),
        (None, ""),
    ] {
        match configuration {
            Some(text) => fs::write(tree.join(".config"), text).unwrap(),
            None => fs::remove_file(tree.join(".config")).unwrap(),
        }
        let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
            .args(["kernels", "add"])
            .arg(format!("own={}", tree.display()))
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), warning);
        assert_eq!(output.status.code(), Some(0));
    }
}
