//! A folder of this machine as the tree of `--root`.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use crate::guestfs::root::tree::{Contents, RootNode};

/// A folder of this machine, identified by its path.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates a folder with this path, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns whether this folder is the root of this machine.
    pub fn is_root(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Returns the node at a path, or `None` if there is none. A link at the end of the path is not followed.
    ///
    /// # Errors
    /// I/O errors, except those for a path that does not exist.
    pub fn node(&self, path: &Path) -> io::Result<Option<RootNode>> {
        let path = self.path.join(path);
        let about = match fs::symlink_metadata(&path) {
            Ok(about) => about,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mode = (about.permissions().mode() & 0o7777) as u16;
        if about.is_dir() {
            Ok(Some(RootNode::Folder { mode }))
        } else if about.is_symlink() {
            let target = fs::read_link(&path)?.into_os_string().into_vec();
            Ok(Some(RootNode::Link { target }))
        } else if about.is_file() {
            let size = about.len();
            Ok(Some(RootNode::File { mode, size }))
        } else {
            Ok(None)
        }
    }

    /// Returns the host's path for a path in the tree.
    pub fn host_path(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    /// Returns the names of a folder's entries.
    ///
    /// # Errors
    /// I/O errors.
    pub fn names(&self, path: &Path) -> io::Result<Vec<Vec<u8>>> {
        let entries = fs::read_dir(self.path.join(path))?;
        entries
            .map(|entry| entry.map(|entry| entry.file_name().as_bytes().to_vec()))
            .collect()
    }

    /// Opens a file. The guest has already resolved the links in the path, so this function follows no links. It does
    /// not even follow a link that has replaced a folder since the guest resolved the path.
    ///
    /// # Errors
    /// I/O errors.
    pub fn contents(&self, path: &Path) -> io::Result<Box<dyn Contents + Send>> {
        let folder = File::open(&self.path)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = openat2(&folder, path, flags, Mode::empty(), resolve);
        let file = match opened {
            // These are the errors of sandboxes that do not support openat2(2).
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                let whole = self.path.join(path);
                rustix::fs::openat(CWD, whole, flags | OFlags::NOFOLLOW, Mode::empty())?
            }
            opened => opened?,
        };
        Ok(Box::new(File::from(file)))
    }
}

impl Contents for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let read = FileExt::read_at(self, &mut buffer[done..], offset + done as u64);
            match read {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn state(&self) -> io::Result<(u64, i64, i64)> {
        let about = self.metadata()?;
        Ok((about.len(), about.mtime(), about.mtime_nsec()))
    }
}

/// Returns whether an error means that the path does not exist.
fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
