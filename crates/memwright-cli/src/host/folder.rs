//! Folders that go with the command that made them, the removal of those whose command was killed before it could, and the
//! folder that `--keep` names.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::host::host_file;

/// How the names of all of them begin.
const PREFIX: &str = "memwright-";
/// The file that is locked while the command lives. A folder without it is not ours, whatever its name.
const LOCK: &str = "memwright.lock";
/// What that file is called before it is locked: a command that finds the lock by its name knows that it was taken.
const UNLOCKED: &str = "memwright.lock.new";
/// The longest path of a socket (sun_path of unix(7) is 108 bytes with its end).
pub const LONGEST_SOCKET: usize = 107;
/// The longest name of a socket in the folder, with its slash.
const SOCKET_NAME: usize = "/control.sock".len();

/// A temporary folder that only this user can enter. It is locked as long as the command lives, however that ends.
#[derive(Debug)]
pub struct PrivateFolder {
    directory: TempDir,
    _lock: File,
}

impl PrivateFolder {
    /// Makes a folder within `parent`, and removes those there that a killed command left.
    ///
    /// # Errors
    /// Those of making and locking it; what cannot be removed stays.
    pub fn within(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent);
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let unlocked = directory.path().join(UNLOCKED);
        let lock = File::create_new(&unlocked)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unlocked, directory.path().join(LOCK))?;
        Ok(Self {
            directory,
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the folders of commands that no longer live. Another user's cannot be opened, and stay.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && is_abandoned(&entry.path()).unwrap_or(false)
        {
            // Another command may be removing it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(folder: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(folder)?.is_dir() {
        return Ok(false);
    }
    // In a folder that everybody can write to, another user's folder can hold anything under that name.
    let (lock, _) = host_file::open(&folder.join(LOCK))?;
    Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// A folder for as long as its value lives; in /tmp when TMPDIR is too deep for a socket.
///
/// # Errors
/// Those of making it.
pub fn private_folder() -> std::io::Result<PrivateFolder> {
    let folder = PrivateFolder::within(&std::env::temp_dir())?;
    if folder.path().as_os_str().len() + SOCKET_NAME <= LONGEST_SOCKET {
        return Ok(folder);
    }
    PrivateFolder::within(Path::new("/tmp"))
}

/// The folder of `--keep`, made when it is missing, as an absolute path.
///
/// # Errors
/// Those of making it.
pub fn kept_folder(path: &Path) -> anyhow::Result<PathBuf> {
    let context = || format!("cannot make the folder {}", path.display());
    fs::create_dir_all(path).with_context(context)?;
    std::path::absolute(path).with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_command_left_goes_and_what_lives_or_is_strange_stays() {
        let host = tempfile::tempdir().unwrap();
        for name in [
            "memwright-killed",
            "memwright-sources",
            "memwright-begun",
            "other",
        ] {
            fs::create_dir(host.path().join(name)).unwrap();
            fs::write(host.path().join(name).join("initrd"), "x").unwrap();
        }
        for name in ["memwright-killed", "other"] {
            fs::write(host.path().join(name).join(LOCK), "").unwrap();
        }
        fs::write(host.path().join("memwright-begun").join(UNLOCKED), "").unwrap();
        fs::write(host.path().join("memwright-file"), "x").unwrap();
        let living = PrivateFolder::within(host.path()).unwrap();
        let name = living.path().file_name().unwrap().to_str().unwrap();
        // Making another folder is what removes the abandoned ones.
        drop(PrivateFolder::within(host.path()).unwrap());
        let mut expected = vec![
            name,
            "memwright-begun",
            "memwright-file",
            "memwright-sources",
            "other",
        ];
        expected.sort_unstable();
        assert_eq!(names(host.path()), expected);
    }

    #[test]
    fn it_goes_with_its_value() {
        let host = tempfile::tempdir().unwrap();
        drop(PrivateFolder::within(host.path()).unwrap());
        assert!(names(host.path()).is_empty());
    }
}
