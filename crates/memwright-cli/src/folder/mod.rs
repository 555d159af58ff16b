//! The folder of one run: a private one that goes with the run, or the one that `--keep` names.

mod private;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::qemu::command::Places;
pub use private::PrivateFolder;

/// The longest path of a socket (sun_path of unix(7) is 108 bytes with its end).
const LONGEST_SOCKET: usize = 107;
/// The longest name of a socket in the folder, with its slash.
const SOCKET_NAME: usize = "/control.sock".len();

/// The files that `--keep` keeps.
pub const KEPT: [&str; 5] = ["kernel", "initrd.cpio", "log", "qemu.log", "command"];

/// Where the files and sockets of a run are.
#[derive(Debug)]
pub struct RunFolder {
    places: Places,
    keep: Option<PathBuf>,
    // Removed when this value goes.
    private: PrivateFolder,
}

impl RunFolder {
    /// Makes the folders.
    ///
    /// # Errors
    /// Those of making folders.
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

    /// The files and sockets.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// A file that lives on only with `--keep`.
    pub fn kept(&self, name: &str) -> Option<PathBuf> {
        Some(self.keep.as_ref()?.join(name))
    }

    /// A file for as long as the run lasts.
    pub fn file(&self, name: &str) -> PathBuf {
        self.keep
            .as_deref()
            .unwrap_or(self.private.path())
            .join(name)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
