//! A newer QEMU from Debian's backports, unpacked into a private cache.
//!
//! Debian 12 has QEMU 7.2, in which one of several CPUs can starve under the instruction clock. Its backports contain a
//! later QEMU that uses the same installed libraries. The packages are unpacked but not installed, so nothing changes
//! outside the cache folder, and the user needs no permissions except to read the archive. A run that needs the later
//! QEMU downloads it automatically.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::host::apt::{Archive, mirror_of};
use crate::host::cache;
use crate::host::folder::PrivateFolder;
use crate::host::output::say;

/// The value of `MEMWRIGHT_QEMU` that selects the QEMU from backports.
pub const NAME: &str = "backports";
/// The suite of Debian that contains the QEMU from backports.
const SUITE: &str = "bookworm-backports";
/// The packages to unpack: the emulator, its data, its firmware.
const PACKAGES: [&str; 4] = [
    "qemu-system-x86",
    "qemu-system-common",
    "qemu-system-data",
    "seabios",
];
/// The release to which the suite belongs. The packages come from the mirror that this machine uses for the release.
const RELEASE: &str = "bookworm";
/// The name of the script in the cache folder that starts the emulator with its own firmware.
const STARTER: &str = "qemu-system-x86_64";

/// Returns the path of the script that starts the unpacked QEMU, whether or not it exists.
///
/// # Errors
/// One line if no folder for a cache can be determined.
pub fn place() -> anyhow::Result<PathBuf> {
    Ok(cache::folder()?.join(format!("qemu-{SUITE}")).join(STARTER))
}

/// Returns the path of the emulator that the script starts.
///
/// # Errors
/// One line if no folder for a cache can be determined.
pub fn executable() -> anyhow::Result<PathBuf> {
    let folder = cache::folder()?.join(format!("qemu-{SUITE}"));
    Ok(folder.join("root/usr/bin/qemu-system-x86_64"))
}

/// Returns the path of the script that starts the unpacked QEMU. If QEMU is not in the cache, it is first downloaded
/// and unpacked.
///
/// # Errors
/// One line if no folder for a cache can be determined, or if apt-get is missing or fails.
pub fn obtain() -> anyhow::Result<PathBuf> {
    let cache = cache::folder()?;
    let folder = cache.join(format!("qemu-{SUITE}"));
    let starter = place()?;
    if starter.exists() {
        return Ok(starter);
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    // Several commands can unpack at the same time. Each unpacks into a private folder, and the first to finish gives
    // its folder the final name.
    let work = PrivateFolder::within(&cache)
        .with_context(|| format!("cannot write to {}", cache.display()))?;
    let fresh = work.path().join("fresh");
    fs::create_dir(&fresh).with_context(|| format!("cannot create {}", fresh.display()))?;
    say(&format!(
        "fetching a later QEMU from Debian's {SUITE} into {} (once; nothing is installed)",
        folder.display()
    ));
    fetch(&fresh)?;
    write_starter(&fresh, &folder)?;
    match fs::rename(&fresh, &folder) {
        Ok(()) => {}
        Err(_) if starter.exists() => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot create {}", folder.display()));
        }
    }
    Ok(starter)
}

/// Downloads the packages and unpacks them.
fn fetch(work: &Path) -> anyhow::Result<()> {
    let archive = Archive::open(work, &mirror_of(RELEASE)?, SUITE)?;
    archive.unpack(&PACKAGES, |_| true)
}

/// Writes the script that starts the emulator with the unpacked data and firmware.
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
    fn the_starter_uses_the_firmware_beside_it() {
        let work = tempfile::tempdir().unwrap();
        write_starter(work.path(), Path::new("/some/where")).unwrap();
        let text = fs::read_to_string(work.path().join(STARTER)).unwrap();
        assert!(text.starts_with("#!/bin/sh\nexec '/some/where/root/usr/bin/qemu-system-x86_64'"));
        assert!(text.contains("-L '/some/where/root/usr/share/seabios' \"$@\""));
    }
}
