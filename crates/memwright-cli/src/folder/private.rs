//! A folder that goes with the command that made it, and the removal of those whose command was killed before it could.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// How the names of all of them begin.
const PREFIX: &str = "memwright-";
/// The file that is locked while the command lives. A folder without it is not ours, whatever its name.
const LOCK: &str = "memwright.lock";
/// Between its making and its lock a folder looks abandoned; no command takes that long for it.
const YOUNG: Duration = Duration::from_secs(600);

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
        remove_abandoned(parent, SystemTime::now());
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::create_new(directory.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
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
fn remove_abandoned(parent: &Path, now: SystemTime) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && is_abandoned(&entry.path(), now).unwrap_or(false)
        {
            // Another command may be removing it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(folder: &Path, now: SystemTime) -> io::Result<bool> {
    let about = fs::symlink_metadata(folder)?;
    let age = now.duration_since(about.modified()?).unwrap_or_default();
    if !about.is_dir() || age < YOUNG {
        return Ok(false);
    }
    let lock = File::open(folder.join(LOCK))?;
    Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
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
        for name in ["memwright-killed", "memwright-sources", "other"] {
            fs::create_dir(host.path().join(name)).unwrap();
            fs::write(host.path().join(name).join("initrd"), "x").unwrap();
        }
        for name in ["memwright-killed", "other"] {
            fs::write(host.path().join(name).join(LOCK), "").unwrap();
        }
        fs::write(host.path().join("memwright-file"), "x").unwrap();
        let living = PrivateFolder::within(host.path()).unwrap();
        let name = living.path().file_name().unwrap().to_str().unwrap();

        remove_abandoned(host.path(), SystemTime::now());
        assert_eq!(names(host.path()).len(), 5, "all are young");
        remove_abandoned(host.path(), SystemTime::now() + 2 * YOUNG);
        let mut expected = vec![name, "memwright-file", "memwright-sources", "other"];
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
