//! A read-only tree of files: a folder of this machine, or an archive.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::guestfs::root::archive::Archive;
use crate::guestfs::root::folder::Folder;

/// A node of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootNode {
    /// A folder.
    Folder {
        /// The permission bits.
        mode: u16,
    },
    /// A symbolic link.
    Link {
        /// The path to which the link leads.
        target: Vec<u8>,
    },
    /// A regular file.
    File {
        /// The permission bits.
        mode: u16,
        /// The size in bytes.
        size: u64,
    },
}

/// A file that is being read.
pub trait Contents {
    /// Reads bytes at `offset` and returns their number, which is less than the length of `buffer` only at the end of
    /// the file.
    ///
    /// # Errors
    /// I/O errors.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns values that change when the contents of the file change: its size and its modification time.
    ///
    /// # Errors
    /// I/O errors.
    fn state(&self) -> io::Result<(u64, i64, i64)>;
}

/// The tree of `--root`.
#[derive(Debug)]
pub struct RootTree {
    source: Source,
    is_without_tmp: bool,
}

/// The storage of a tree.
#[derive(Debug)]
enum Source {
    /// A folder of this machine, such as its root.
    Folder(Folder),
    /// An archive.
    Archive(Archive),
}

/// Folders at the root that are never read from the tree, because the guest has its own.
const HIDDEN: [&str; 5] = ["dev", "proc", "sys", "run", ".memwright"];

/// The maximum length of a name and of a link's target on Linux, in bytes.
const NAME_MAX: usize = 255;
const TARGET_MAX: usize = 4095;

impl RootTree {
    /// Opens the tree that `--root` names.
    ///
    /// # Errors
    /// One line with the reason: the path does not exist, or is neither a folder nor a tar archive.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("--root {}", path.display());
        let about = std::fs::metadata(path).with_context(context)?;
        let source = if about.is_dir() {
            let path = std::path::absolute(path).with_context(context)?;
            Source::Folder(Folder::new(path))
        } else if about.is_file() {
            Source::Archive(Archive::open(path).with_context(context)?)
        } else {
            bail!("{}: is neither a folder nor a tar archive", context());
        };
        Ok(Self {
            source,
            is_without_tmp: false,
        })
    }

    /// Returns the tree with its folder `/tmp` hidden.
    pub fn without_tmp(self) -> Self {
        Self {
            is_without_tmp: true,
            ..self
        }
    }

    /// Returns whether the tree is the complete root of this machine. Paths in the guest are then also paths on the
    /// host.
    pub fn is_whole_machine(&self) -> bool {
        match &self.source {
            Source::Folder(folder) => folder.is_root(),
            Source::Archive(_) => false,
        }
    }

    /// Returns the node at a path, or `None` if there is none or if the guest cannot use it. The guest gets no sockets,
    /// pipes or devices, and its kernel provides `/dev`, `/proc`, `/sys` and `/run` itself.
    ///
    /// # Errors
    /// I/O errors.
    pub fn node(&self, path: &[u8]) -> io::Result<Option<RootNode>> {
        let is_missing = self.is_without_tmp && first_name(path) == b"tmp";
        if is_missing || is_hidden(path) {
            return Ok(None);
        }
        let relative = relative(path);
        match &self.source {
            Source::Folder(folder) => folder.node(&relative),
            Source::Archive(archive) => Ok(archive.node(&relative)),
        }
    }

    /// Returns the names of a folder's entries, sorted.
    ///
    /// # Errors
    /// I/O errors.
    pub fn names(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let mut names = match &self.source {
            Source::Folder(folder) => folder.names(&relative(path))?,
            Source::Archive(archive) => archive.names(&relative(path)),
        };
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the host's path of a file, or `None` for a file of an archive. The path must not contain links, because
    /// the guest resolves them.
    pub fn host_path(&self, path: &[u8]) -> Option<PathBuf> {
        match &self.source {
            Source::Folder(folder) => Some(folder.host_path(&relative(path))),
            Source::Archive(_) => None,
        }
    }

    /// Reads a file of `size` bytes.
    ///
    /// # Errors
    /// I/O errors, and `UnexpectedEof` if the file has become shorter.
    pub fn read(&self, path: &[u8], size: u64) -> io::Result<Vec<u8>> {
        let contents = self.contents(path)?;
        let mut bytes = vec![0; size as usize];
        match contents.read_at(&mut bytes, 0)? == bytes.len() {
            true => Ok(bytes),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// I/O errors.
    pub fn contents(&self, path: &[u8]) -> io::Result<Box<dyn Contents + Send>> {
        match &self.source {
            Source::Folder(folder) => folder.contents(&relative(path)),
            Source::Archive(archive) => archive.contents(&relative(path)),
        }
    }
}

/// Returns whether the guest finds nothing at this path, whatever the tree contains: the path is in one of the folders
/// `HIDDEN`, or the path or a name in it is too long for Linux.
pub fn is_hidden(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/').skip(1);
    let first = first_name(path);
    HIDDEN.iter().any(|hidden| hidden.as_bytes() == first)
        || names.any(|name| name.len() > NAME_MAX)
        || path.len() > TARGET_MAX
}

/// Returns the first name in an absolute path.
fn first_name(path: &[u8]) -> &[u8] {
    let mut names = path.split(|byte| *byte == b'/').skip(1);
    names.next().unwrap_or_default()
}

/// Returns an absolute path of the guest as a path relative to the root of the tree.
fn relative(path: &[u8]) -> PathBuf {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    PathBuf::from(OsStr::from_bytes(relative))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_kernels_own_folders_are_hidden() {
        for (path, hidden) in [
            ("/proc", true),
            ("/proc/1", true),
            ("/process", false),
            ("/usr/proc", false),
            ("/run/x", true),
            ("/.memwright", true),
            ("", false),
        ] {
            assert_eq!(is_hidden(path.as_bytes()), hidden, "{path}");
        }
        assert!(is_hidden(format!("/{}", "n".repeat(256)).as_bytes()));
    }

    #[test]
    fn a_tree_without_tmp_has_everything_else() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["tmp/x", "tmpx", "usr/tmp"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        let has = |tree: &RootTree| {
            ["/tmp", "/tmp/x", "/tmpx", "/usr/tmp"]
                .map(|path| tree.node(path.as_bytes()).unwrap().is_some())
        };
        let tree = RootTree::open(folder.path()).unwrap();
        assert_eq!(has(&tree), [true, true, true, true]);
        assert_eq!(has(&tree.without_tmp()), [false, false, true, true]);
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::write(&text, "no archive").unwrap();
        let packed = folder.path().join("packed");
        fs::write(&packed, [0x1f, 0x8b, 8, 0, 0, 0]).unwrap();
        for (path, why) in [
            (folder.path().join("missing"), "No such file"),
            (text, "not a tar archive"),
            (packed, "compressed"),
            (PathBuf::from("/dev/null"), "neither a folder nor"),
        ] {
            let error = RootTree::open(&path).map(drop).unwrap_err();
            assert!(format!("{error:#}").contains(why), "{error:#}");
        }
    }
}
