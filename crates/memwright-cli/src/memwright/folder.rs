//! The folder of one run: a temporary folder that is removed after the run, or the folder that `--keep` names.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::host::folder::{PrivateFolder, kept_folder, private_folder};
use crate::qemu::command::Places;

/// The names of the files that remain in the folder of `--keep` after a run.
pub const KEPT: [&str; 5] = ["kernel", "initrd.cpio", "log", "qemu.log", "command"];

/// The paths of the files and sockets of a run.
#[derive(Debug)]
pub struct RunFolder {
    places: Places,
    keep: Option<PathBuf>,
    // Dropping this value removes the temporary folder.
    private: PrivateFolder,
}

impl RunFolder {
    /// Creates the temporary folder and, with `--keep`, its folder.
    ///
    /// # Errors
    /// I/O errors of creating the folders.
    pub fn create(keep: Option<&Path>) -> anyhow::Result<Self> {
        let private = private_folder().context("cannot make a temporary folder")?;
        let keep = keep.map(kept_folder).transpose()?;
        let places = Places::within(keep.as_deref().unwrap_or(private.path()), private.path());
        Ok(Self {
            places,
            keep,
            private,
        })
    }

    /// Returns the paths of the files and sockets.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Returns the path of a file that is kept after the run; `None` without `--keep`.
    pub fn kept(&self, name: &str) -> Option<PathBuf> {
        Some(self.keep.as_ref()?.join(name))
    }

    /// Returns the path of a file in the folder of `--keep` or, without `--keep`, in the temporary folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.keep
            .as_deref()
            .unwrap_or(self.private.path())
            .join(name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::folder::LONGEST_SOCKET;

    #[test]
    fn nothing_is_left_without_keep() {
        let run = RunFolder::create(None).unwrap();
        let kernel = run.places().kernel.clone();
        fs::write(&kernel, "x").unwrap();
        assert_eq!(run.kept("log"), None);
        drop(run);
        assert!(!kernel.exists() && !kernel.parent().unwrap().exists());
    }

    #[test]
    fn kept_files_stay_and_sockets_do_not() {
        let host = tempfile::tempdir().unwrap();
        let run = RunFolder::create(Some(&host.path().join("a/b"))).unwrap();
        let places = run.places().clone();
        assert_eq!(places.kernel, host.path().join("a/b/kernel"));
        assert!(places.control.as_os_str().len() <= LONGEST_SOCKET);
        assert_eq!(run.kept("log"), Some(host.path().join("a/b/log")));
        drop(run);
        assert!(
            places.kernel.parent().unwrap().exists() && !places.control.parent().unwrap().exists()
        );
    }
}
