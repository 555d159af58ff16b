//! A newer QEMU from Debian's backports, unpacked into a private cache.
//!
//! Debian 12 has QEMU 7.2, under which a CPU may starve when several count instructions. Its backports hold a later one
//! whose libraries are those of the installed package. The packages are unpacked and never installed: nothing outside the
//! cache folder changes, and no right beyond reading the archive is needed. A run that needs it takes it by itself.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::cache;
use crate::session::say;

/// The value of `MEMWRIGHT_QEMU` that asks for this one.
pub const NAME: &str = "backports";
/// The suite that has it.
const SUITE: &str = "bookworm-backports";
/// What is unpacked: the emulator, its data, its firmware.
const PACKAGES: [&str; 4] = [
    "qemu-system-x86",
    "qemu-system-common",
    "qemu-system-data",
    "seabios",
];
/// The release that the suite belongs to: the machine's own mirror of it has the suite too.
const RELEASE: &str = "bookworm";
/// Signs Debian's archive; part of Debian itself.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The script in the cache that starts the emulator with its own firmware.
const STARTER: &str = "qemu-system-x86_64";

/// Where the unpacked QEMU is, or will be.
///
/// # Errors
/// One line when there is no home for a cache.
pub fn place() -> anyhow::Result<PathBuf> {
    Ok(cache::folder()?.join(format!("qemu-{SUITE}")).join(STARTER))
}

/// The emulator itself, which the starter starts.
///
/// # Errors
/// One line when there is no home for a cache.
pub fn executable() -> anyhow::Result<PathBuf> {
    let folder = cache::folder()?.join(format!("qemu-{SUITE}"));
    Ok(folder.join("root/usr/bin/qemu-system-x86_64"))
}

/// The path of the unpacked QEMU; unpacks it first when the cache does not have it.
///
/// # Errors
/// One line when there is no home for a cache, or apt-get or dpkg is missing or fails.
pub fn obtain() -> anyhow::Result<PathBuf> {
    let cache = cache::folder()?;
    let folder = cache.join(format!("qemu-{SUITE}"));
    let starter = place()?;
    if starter.exists() {
        return Ok(starter);
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    // Another command may unpack at the same time: each works in a folder of its own, the first to finish names it.
    let work = tempfile::Builder::new()
        .prefix("unpacking-")
        .tempdir_in(&cache)
        .with_context(|| format!("cannot write to {}", cache.display()))?;
    say(&format!(
        "fetching a later QEMU from Debian's {SUITE} into {} (once; nothing is installed)",
        folder.display()
    ));
    fetch(work.path())?;
    write_starter(work.path(), &folder)?;
    match fs::rename(work.path(), &folder) {
        Ok(()) => {
            // It has its final name now; there is nothing left to remove.
            let _ = work.keep();
        }
        Err(_) if starter.exists() => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot create {}", folder.display()));
        }
    }
    Ok(starter)
}

/// Downloads the packages with apt's own means, but lists, settings and archives inside `work`, and unpacks them.
fn fetch(work: &Path) -> anyhow::Result<()> {
    for name in ["lists/partial", "archives/partial", "root"] {
        fs::create_dir_all(work.join(name))?;
    }
    let mirror = mirror()?;
    let source = format!("deb [signed-by={KEYRING}] {mirror} {SUITE} main\n");
    fs::write(work.join("sources.list"), source)?;
    apt_get(work, &["update".to_owned()])?;
    let mut download = vec!["download".to_owned()];
    download.extend(PACKAGES.map(|package| format!("{package}/{SUITE}")));
    apt_get(work, &download)?;
    let mut unpacked = 0;
    for entry in fs::read_dir(work.join("archives"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            let mut dpkg = Command::new("dpkg");
            dpkg.arg("-x").arg(&path).arg(work.join("root"));
            finish(&mut dpkg)?;
            fs::remove_file(&path)?;
            unpacked += 1;
        }
    }
    ensure!(
        unpacked == PACKAGES.len(),
        "{SUITE} gave {unpacked} of {} packages",
        PACKAGES.len()
    );
    Ok(())
}

/// The mirror of Debian's archive that this machine uses.
fn mirror() -> anyhow::Result<String> {
    let listing = finish(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(LABEL)|$(CODENAME)|$(REPO_URI)",
        "Identifier: Packages",
    ]))?;
    let mirror = choose_mirror(&listing).map(str::to_owned);
    mirror.with_context(|| format!("apt knows no mirror of Debian {RELEASE} (apt-get update?)"))
}

/// Picks the release's main archive from lines `label|codename|address`.
fn choose_mirror(listing: &str) -> Option<&str> {
    let prefix = format!("Debian|{RELEASE}|");
    listing.lines().find_map(|line| line.strip_prefix(&prefix))
}

/// Runs apt-get with everything it reads and writes inside `work`.
fn apt_get(work: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    command.current_dir(work.join("archives")).arg("-qq");
    for (setting, value) in [
        ("Dir::Etc::sourcelist", work.join("sources.list")),
        ("Dir::Etc::sourceparts", PathBuf::from("/dev/null")),
        ("Dir::State::lists", work.join("lists")),
        ("Dir::Cache", work.join("archives")),
        ("Dir::Cache::archives", work.join("archives")),
        ("APT::Sandbox::User", PathBuf::from("root")),
    ] {
        command
            .arg("-o")
            .arg(format!("{setting}={}", value.display()));
    }
    finish(command.args(arguments)).map(drop)
}

/// Runs a command to its end and returns its output; its errors become one line.
fn finish(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{name} cannot be started"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name} failed: {}",
        errors.lines().last().unwrap_or("it gave no reason")
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Writes the script that starts the emulator with the data and firmware beside it.
fn write_starter(work: &Path, folder: &Path) -> anyhow::Result<()> {
    let root = folder.join("root/usr");
    let path = work.join(STARTER);
    let mut file = fs::File::create(&path)?;
    write!(
        file,
        "#!/bin/sh\nexec '{root}/bin/qemu-system-x86_64' -L '{root}/share/qemu' -L '{root}/share/seabios' \"$@\"\n",
        root = root.display()
    )?;
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_says_so_in_one_line() {
        let error =
            finish(Command::new("sh").args(["-c", "echo first >&2; echo last >&2; exit 3"]));
        assert_eq!(error.unwrap_err().to_string(), "sh failed: last");
        let missing = finish(&mut Command::new("/no/such/command")).unwrap_err();
        assert!(
            missing.to_string().contains("cannot be started"),
            "{missing}"
        );
    }

    #[test]
    fn the_mirror_is_the_one_of_the_release_itself() {
        let listing = "Debian Backports|bookworm-backports|http://a/\nDebian|trixie|http://b/\n\
            Debian|bookworm|http://c/debian/\nDebian|bookworm|http://d/\n";
        assert_eq!(choose_mirror(listing), Some("http://c/debian/"));
        assert_eq!(
            choose_mirror("Debian-Security|bookworm-security|http://e/"),
            None
        );
    }

    #[test]
    fn the_starter_uses_the_firmware_beside_it() {
        let work = tempfile::tempdir().unwrap();
        write_starter(work.path(), Path::new("/cache/q")).unwrap();
        let text = fs::read_to_string(work.path().join(STARTER)).unwrap();
        assert!(text.starts_with("#!/bin/sh\nexec '/cache/q/root/usr/bin/qemu-system-x86_64'"));
        assert!(text.contains("-L '/cache/q/root/usr/share/seabios' \"$@\""));
    }
}
