//! Tests the command line as users see it: help, usage errors, bad input, and the QEMU command line.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[test]
fn transcripts() {
    trycmd::TestCases::new()
        .env("MEMWRIGHT_QEMU", "qemu-system-x86_64")
        .case("tests/cmd/*.trycmd");
}

/// If the package of a workload is missing, the error names the package and the command that installs it, before a
/// program runs. The package manager is a stand-in, so that the test does not depend on the installed packages.
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

/// A file that is not a kernel configuration is rejected at once, without being read to its end.
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

/// A kernel tree is added with a warning if its configuration lacks an option that every run needs. The image in this
/// tree is only a boot header.
#[test]
fn a_tree_that_lacks_options_is_added_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let image = tree.join("arch/x86/boot/bzImage");
    fs::create_dir_all(image.parent().unwrap()).unwrap();
    fs::write(image, boot_header()).unwrap();
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

/// Returns the smallest file that looks like an image: a boot header.
fn boot_header() -> Vec<u8> {
    let mut bytes = vec![0; 0x400];
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes
}

/// Returns a Debian package with one file.
fn package(path: &str, contents: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(contents.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, path, contents).unwrap();
    let mut bytes = b"!<arch>\n".to_vec();
    let data = builder.into_inner().unwrap();
    for (name, data) in [("debian-binary", &b"2.0\n"[..]), ("data.tar", &data)] {
        bytes.extend(format!("{name:<48}{:<10}`\n", data.len()).as_bytes());
        bytes.extend(data);
    }
    bytes
}

/// Runs `kernels add` without any program in `PATH`, and returns its exit code and what it prints to standard error.
fn add_without_programs(folder: &Path, text: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["kernels", "add", text])
        .env("PATH", "")
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// `kernels add` accepts a package, or a folder into which a package was unpacked. It also does so where neither apt
/// nor dpkg is installed.
#[test]
fn a_package_is_added_without_apt() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.deb");
    fs::write(&file, package("boot/vmlinuz-6.1", &boot_header())).unwrap();
    let unpacked = folder.path().join("unpacked");
    fs::create_dir_all(unpacked.join("lib/modules/7.2/kernel/mm")).unwrap();
    fs::write(unpacked.join("lib/modules/7.2/vmlinuz"), boot_header()).unwrap();
    fs::write(unpacked.join("lib/modules/7.2/kernel/mm/zsmalloc.ko"), "x").unwrap();
    for (name, path) in [("file", &file), ("folder", &unpacked)] {
        let text = format!("{name}={}", path.display());
        let added = add_without_programs(folder.path(), &text);
        assert_eq!(added, (Some(0), String::new()), "{text}");
        let kept = folder.path().join("cache/memwright/kernels").join(name);
        assert_eq!(fs::read(kept.join("vmlinuz")).unwrap(), boot_header());
        assert_eq!(
            kept.join("modules/04-zsmalloc.ko").is_file(),
            name == "folder"
        );
    }
}

/// A request for a version that the suite does not have fails as a usage error. Its one-line message lists the versions
/// in the suite. The programs of apt are stand-ins.
#[test]
fn a_version_that_is_gone_is_answered_with_those_that_exist() {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("bin");
    fs::create_dir(&programs).unwrap();
    for (name, script) in [
        (
            "apt-get",
            "case \"$*\" in indextargets*) echo 'Debian|trixie|http://mirror.example/debian/';; esac",
        ),
        (
            "apt-cache",
            "case \"$*\" in\n\
             *pkgnames*) echo linux-image-cloud-amd64; echo linux-image-6.12.9-cloud-amd64;;\n\
             *show*cloud-amd64/trixie) printf 'Package: linux-image-6.12.9-cloud-amd64\\nVersion: 6.12.9-1\\n';;\n\
             *) exit 100;;\n\
             esac",
        ),
    ] {
        let path = programs.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    for action in [
        vec!["kernels", "add", "debian:trixie=6.12.1-1"],
        vec!["run", "--kernel", "old=debian:trixie=6.12.1-1", "/bin/true"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
            .args(&action)
            .env("PATH", &programs)
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let code = if action[0] == "run" { 125 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(
            said.ends_with(
                "memwright: Debian's trixie has no kernel 6.12.1-1; it has 6.12.9-1 \
                 (memwright kernels add debian:trixie=VERSION)\n"
            ),
            "{said}"
        );
    }
}

/// A file that is not a complete kernel package is rejected with a one-line message, and the cache stays unchanged.
#[test]
fn hostile_packages_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let whole = package("boot/vmlinuz-6.1", &boot_header());
    fs::write(at("truncated.deb"), &whole[..whole.len() / 2]).unwrap();
    fs::write(at("header.deb"), &whole[..8]).unwrap();
    fs::write(at("other.deb"), package("usr/bin/true", b"x")).unwrap();
    fs::write(at("text.deb"), package("boot/vmlinuz-6.1", b"no image")).unwrap();
    let damaged = package("boot/x", b"x");
    let damaged = String::from_utf8(damaged)
        .unwrap()
        .replace("boot/x", "../../");
    fs::write(at("damaged.deb"), damaged).unwrap();
    File::create(at("large.deb"))
        .unwrap()
        .set_len(5 << 30)
        .unwrap();
    let made = Command::new("mkfifo").arg(at("pipe.deb")).status().unwrap();
    assert!(made.success());
    for path in ["boot/vmlinuz-1", "boot/vmlinuz-2"] {
        fs::create_dir_all(at("several/boot")).unwrap();
        fs::write(at("several").join(path), boot_header()).unwrap();
    }
    for (name, reason) in [
        (
            "truncated.deb",
            "is not a complete Debian package: data.tar is truncated",
        ),
        (
            "header.deb",
            "is not a complete Debian package: it has no data.tar",
        ),
        (
            "other.deb",
            "has no image of Linux, boot/vmlinuz-VERSION or lib/modules/VERSION/vmlinuz",
        ),
        ("text.deb", "not a Linux kernel image (bzImage or vmlinux)"),
        ("damaged.deb", "is damaged: "),
        ("large.deb", "is larger than 4096 MiB"),
        ("pipe.deb", "is a named pipe, not a regular file"),
        ("several", "has several images, of 1, 2: name one of them"),
        ("/dev/zero", "is a device, not a regular file"),
    ] {
        let text = format!("own={}", at(name).display());
        let (code, said) = add_without_programs(folder.path(), &text);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(reason), "{name}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let kept = fs::read_dir(at("cache/memwright/kernels")).unwrap();
    assert_eq!(kept.count(), 0);
}
