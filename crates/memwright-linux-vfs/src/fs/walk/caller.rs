//! Path resolution on behalf of a system call.

use crate::fs::{
    caller::Caller,
    dentry::Dentry,
    permission::Permission,
    walk::{LastLink, Walked, Walker},
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;

impl dyn Caller + '_ {
    /// Returns the directory entry at which the resolution of `path` starts: the root, the working directory, or the
    /// entry of the descriptor `directory`.
    ///
    /// # Errors
    /// `EBADF` if the path is relative and the descriptor is not open.
    pub fn path_start(&self, directory: i32, path: &[u8]) -> Result<Arc<Dentry>, Errno> {
        if path.first() == Some(&b'/') {
            Ok(self.fs().root())
        } else if directory == raw::AT_FDCWD {
            Ok(self.fs().directory())
        } else {
            Ok(self.files().get(directory)?.entry.clone())
        }
    }

    /// Checks that the caller is allowed to make `entry` its working directory or root.
    ///
    /// # Errors
    /// `ENOTDIR` if it is not a directory, `EACCES` if the caller is not allowed to search it.
    pub fn check_enterable(&self, entry: &Dentry) -> Result<(), Errno> {
        if !entry.inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        entry.inode.check(&self.subject(), Permission::EXECUTE)
    }

    /// Changes the working directory to `path`, which is resolved from the root. An empty path changes nothing.
    ///
    /// # Errors
    /// The errors of [`Walker::walk`] and `check_enterable`.
    pub fn enter(&self, path: &[u8]) -> Result<(), Errno> {
        if path.is_empty() {
            return Ok(());
        }
        let fs = self.fs();
        let root = fs.root();
        let walker = Walker {
            caller: Some(self),
            subject: self.subject(),
            root: &root,
        };
        let entry = walker.resolve(&root, path, LastLink::Follow)?;
        self.check_enterable(&entry)?;
        fs.set_directory(entry);
        Ok(())
    }

    /// Resolves the path at the user address `address` up to its last component, and looks up the last component. A
    /// relative path starts at the descriptor `directory`.
    ///
    /// # Errors
    /// `EFAULT`, `ENAMETOOLONG`, `EBADF`, and the errors of [`Walker::walk`].
    pub fn walk_at(
        &self,
        directory: i32,
        address: u64,
        last_link: LastLink,
    ) -> Result<Walked, Errno> {
        let path = self.memory().read_path(address)?;
        self.walk_path(directory, &path, last_link)
    }

    /// Resolves a path in kernel memory up to its last component, and looks up the last component. A relative path
    /// starts at the descriptor `directory`.
    ///
    /// # Errors
    /// `EBADF`, and the errors of [`Walker::walk`].
    pub fn walk_path(
        &self,
        directory: i32,
        path: &[u8],
        last_link: LastLink,
    ) -> Result<Walked, Errno> {
        let start = self.path_start(directory, path)?;
        let root = self.fs().root();
        let walker = Walker {
            caller: Some(self),
            subject: self.subject(),
            root: &root,
        };
        walker.walk(&start, path, last_link)
    }

    /// Resolves the path at the user address `address`, as the `AT_` flags of a system call specify. With
    /// `AT_EMPTY_PATH`, an empty path, or since Linux 6.11 a null pointer, refers to the entry of the descriptor
    /// itself.
    ///
    /// # Errors
    /// The errors of `walk_at`, and `ENOENT`.
    pub fn resolve_at(
        &self,
        directory: i32,
        address: u64,
        flags: u32,
    ) -> Result<Arc<Dentry>, Errno> {
        let nofollow = flags & raw::AT_SYMLINK_NOFOLLOW != 0;
        let last_link = if nofollow {
            LastLink::Keep
        } else {
            LastLink::Follow
        };
        if flags & raw::AT_EMPTY_PATH != 0 {
            let path = if address == 0 {
                Default::default()
            } else {
                self.memory().read_path(address)?
            };
            if path.is_empty() {
                return self.path_start(directory, b"");
            }
        }
        self.walk_at(directory, address, last_link)?.existing()
    }
}
