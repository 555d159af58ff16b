//! Temporary folders, and the folder of `--keep`. A temporary folder is removed when the command exits. If the command
//! is killed, a later command removes the folder.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::host::host_file;

/// The prefix of the names of temporary folders.
const PREFIX: &str = "memwright-";
/// The file that is locked while the command runs. A folder without it was not created by this module, whatever its
/// name is.
const LOCK: &str = "memwright.lock";
/// The name of the lock file before it is locked. A file named [`LOCK`] has therefore been locked at least once.
const UNLOCKED: &str = "memwright.lock.new";
/// The maximum length of a socket's path (sun_path of unix(7) is 108 bytes with the terminator).
pub const LONGEST_SOCKET: usize = 107;
/// The maximum length of the name of a socket in the folder, including the slash.
const SOCKET_NAME: usize = "/control.sock".len();

/// A temporary folder that only this user can access. It is locked until the command exits or is killed.
#[derive(Debug)]
pub struct PrivateFolder {
    directory: TempDir,
    _lock: File,
}

impl PrivateFolder {
    /// Creates a folder in `parent`, after removing the folders there that killed commands left behind.
    ///
    /// # Errors
    /// I/O errors of creating and locking the folder. Errors of removing other folders are ignored.
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

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the folders of commands that have exited. The folders of other users cannot be opened and are not removed.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && is_abandoned(&entry.path()).unwrap_or(false)
        {
            // Another command may be removing the folder at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(folder: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(folder)?.is_dir() {
        return Ok(false);
    }
    // In a world-writable folder such as /tmp, a folder found here can be another user's, and its lock file can be any
    // kind of file.
    let (lock, _) = host_file::open(&folder.join(LOCK))?;
    Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Returns a folder that exists until the value is dropped. It is in /tmp if the path of TMPDIR is too long for a
/// socket.
///
/// # Errors
/// I/O errors of creating the folder.
pub fn private_folder() -> std::io::Result<PrivateFolder> {
    let folder = PrivateFolder::within(&std::env::temp_dir())?;
    if folder.path().as_os_str().len() + SOCKET_NAME <= LONGEST_SOCKET {
        return Ok(folder);
    }
    PrivateFolder::within(Path::new("/tmp"))
}

/// Returns the absolute path of the folder of `--keep`, which is created if it does not exist.
///
/// # Errors
/// I/O errors of creating the folder.
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
        // Creating another folder removes the abandoned folders.
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
