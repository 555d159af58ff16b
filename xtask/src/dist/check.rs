//! Checks the contents of a package, and runs its command without a compiler.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::folder;
use super::package::{MANUAL, PROGRAMS, SAMPLE, files};
use crate::tier::Outcome;
use crate::{install, remap, shell};

/// Files that the package must have, besides those of [`PROGRAMS`].
const EXPECTED: [&str; 16] = [
    "usr/bin/memwright",
    "usr/include/memwright/mark.h",
    "usr/share/bash-completion/completions/memwright",
    "usr/share/doc/memwright/copyright",
    "usr/share/doc/memwright/libraries.gz",
    "usr/share/fish/vendor_completions.d/memwright.fish",
    "usr/share/man/man1/memwright-bench.1.gz",
    "usr/share/man/man1/memwright-check.1.gz",
    "usr/share/man/man1/memwright-compare.1.gz",
    "usr/share/man/man1/memwright-kernels-add.1.gz",
    "usr/share/man/man1/memwright-report.1.gz",
    "usr/share/man/man1/memwright-run.1.gz",
    "usr/share/man/man1/memwright.1.gz",
    "usr/share/memwright/plugin/LICENSE",
    "usr/share/zsh/vendor-completions/_memwright",
    SAMPLE,
];
/// The modes of folders, programs and other files.
const MODES: [&str; 3] = ["drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--"];
/// The number of versions of QEMU's plugin interface for which the package has a plugin.
const PLUGINS: usize = 3;
/// The only library that a plugin may need. QEMU itself needs it.
const LIBRARY: &str = "[libc.so.6]";

/// Checks a package: the presence, modes and owners of its files; that its programs need no library and contain no path
/// of this machine; that its command counts without a compiler; and that its manual pages render without warnings.
///
/// # Errors
/// If a check fails.
pub fn check(package: &Path) -> Result<Outcome> {
    let root = folder().join("unpacked");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let mut list = Command::new("dpkg-deb");
    let lines = shell::output(list.arg("-c").arg(package)).context("dpkg-deb lists no files")?;
    if let Some(line) = lines.lines().find(|line| !is_proper(line)) {
        bail!("a file has another mode or owner than it should have: {line}");
    }
    shell::run(Command::new("dpkg-deb").arg("-x").args([package, &root]))?;
    for name in EXPECTED {
        ensure!(root.join(name).is_file(), "the package lacks {name}");
    }
    programs(&root)?;
    completions(&root)?;
    counts(&root)?;
    manual(&root)
}

/// Returns whether a line of `dpkg-deb -c` has a usual mode, and root as the owner and the group.
fn is_proper(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let mode = words.next().unwrap_or_default();
    MODES.contains(&mode) && words.next() == Some("root/root")
}

/// Checks that no program is linked dynamically, that no plugin needs a library except the C library, and that no
/// program or plugin contains a path of this machine.
fn programs(root: &Path) -> Result<()> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let places = remap::places(&rustc, &shell::root());
    let mut plugins = 0;
    for path in files(root)? {
        if !fs::read(&path)?.starts_with(b"\x7fELF") {
            continue;
        }
        for (place, _) in &places {
            let mut grep = Command::new("grep");
            grep.args(["-qaF", "-e"]).arg(place).arg(&path);
            ensure!(
                !shell::succeeds(&mut grep),
                "{} contains the path {}",
                path.display(),
                place.display()
            );
        }
        if path.extension().is_some_and(|extension| extension == "so") {
            plugins += 1;
            let mut readelf = Command::new("readelf");
            let text = shell::output(readelf.arg("-d").arg(&path)).context("readelf fails")?;
            let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
            for line in needed {
                ensure!(line.contains(LIBRARY), "{}: {line}", path.display());
            }
        } else {
            ensure!(
                install::is_static(&path),
                "{} is linked dynamically",
                path.display()
            );
        }
    }
    ensure!(
        plugins == PLUGINS,
        "{PROGRAMS} has {plugins} plugins, not {PLUGINS}"
    );
    Ok(())
}

/// Checks that bash accepts the completions for bash. The completions for other shells are not checked, because these
/// shells may be missing.
fn completions(root: &Path) -> Result<()> {
    let path = root.join("usr/share/bash-completion/completions/memwright");
    shell::run(Command::new("bash").arg("-n").arg(path))
}

/// Runs the sample on Memwright's kernel, and counts its instructions with QEMU's plugin. QEMU is the only program in
/// `PATH`.
fn counts(root: &Path) -> Result<()> {
    let room = folder().join("room");
    if room.exists() {
        fs::remove_dir_all(&room)?;
    }
    fs::create_dir_all(room.join("bin"))?;
    let qemu = shell::which("qemu-system-x86_64").context("QEMU is missing")?;
    symlink(&qemu, room.join("bin/qemu-system-x86_64"))?;
    let mut command = Command::new(root.join("usr/bin/memwright"));
    command
        .args(["check", "--kernel", "memwright"])
        .args(["--limit", "region.1.instructions.kernel=1000000000"])
        .arg(root.join(SAMPLE))
        .env_clear()
        .env("PATH", room.join("bin"))
        .env("HOME", &room)
        .current_dir("/");
    shell::step(&shell::line(&command));
    let output = command.output().context("the command cannot be started")?;
    ensure!(
        output.status.success(),
        "the installed command does not count: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Checks that each manual page renders without a warning.
fn manual(root: &Path) -> Result<Outcome> {
    if shell::which("man").is_none() {
        return Ok(Outcome::Skipped(
            "the manual pages were not rendered: man-db is not installed".to_owned(),
        ));
    }
    for page in files(&root.join(MANUAL))? {
        let said = warnings(&page)?;
        ensure!(said.is_empty(), "{}: {said}", page.display());
    }
    Ok(Outcome::Passed)
}

/// Returns the warnings that man prints about a page.
fn warnings(page: &PathBuf) -> Result<String> {
    let mut man = Command::new("man");
    man.args(["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"])
        .arg(page)
        .env("LC_ALL", "C.UTF-8")
        .env("MANROFFSEQ", "")
        .env("MANWIDTH", "80")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let output = man.output().context("man cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(
        output.status.success() || !said.is_empty(),
        "man fails: {}",
        output.status
    );
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_root_and_have_usual_modes() {
        for (line, expected) in [
            (
                "-rwxr-xr-x root/root  1 2026-11-29 12:00 ./usr/bin/memwright",
                true,
            ),
            ("drwxr-xr-x root/root  0 2026-11-29 12:00 ./", true),
            ("-rw-r--r-- root/root  1 2026-11-29 12:00 ./usr/x", true),
            ("-rw-r--r-- user/user  1 2026-11-29 12:00 ./usr/x", false),
            ("-rw-rw-r-- root/root  1 2026-11-29 12:00 ./usr/x", false),
            ("-rwsr-xr-x root/root  1 2026-11-29 12:00 ./usr/x", false),
            (
                "lrwxrwxrwx root/root  0 2026-11-29 12:00 ./usr/x -> y",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(is_proper(line), expected, "{line}");
        }
    }
}
