//! Opens executable files for `execve`.

use crate::fs::{
    caller::Caller,
    dentry::Dentry,
    inode::Body,
    kind::Kind,
    open::OpenRequest,
    open_file::OpenFile,
    permission::Permission,
    regular::Regular,
    tmpfs::MountFlags,
    vfs::Vfs,
    walk::{LastLink, Walker},
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright::object::Object;
use memwright_linux_abi::{M, errno::Errno};

/// A regular file that is open for execution. While it exists, the file cannot be opened for writing.
pub struct Executable {
    open: Arc<OpenFile>,
}

impl dyn Caller + '_ {
    /// Opens the program at `path`, which is resolved from `start`, for execution.
    ///
    /// # Errors
    /// The errors of `execve(2)` that concern the file: `ENOENT`, `EACCES` if the file is not a regular file, has no
    /// execute permission or is on a mount with `noexec`, `ETXTBSY`, `ELOOP`, `ENOTDIR`, `ENAMETOOLONG`.
    pub fn open_executable(
        &self,
        start: &Arc<Dentry>,
        path: &[u8],
        last_link: LastLink,
    ) -> Result<Executable, Errno> {
        let root = self.fs().root();
        let walker = Walker {
            caller: Some(self),
            subject: self.subject(),
            root: &root,
        };
        let entry = walker.resolve(start, path, last_link)?;
        self.executable(&entry)
    }

    /// Opens the program of the directory entry `entry` for execution. The caller has found the entry by a path or
    /// through an open file.
    ///
    /// # Errors
    /// `EACCES` if the file is not a regular file, has no execute permission or is on a mount with `noexec`, `ELOOP`
    /// for a symbolic link, `ETXTBSY` if the file is open for writing.
    pub fn executable(&self, entry: &Arc<Dentry>) -> Result<Executable, Errno> {
        match entry.inode.kind() {
            Kind::Regular => {}
            Kind::Symlink => return Err(Errno::ELOOP),
            Kind::Directory
            | Kind::Character
            | Kind::Block
            | Kind::Fifo
            | Kind::Socket
            | Kind::Anonymous => {
                return Err(Errno::EACCES);
            }
        }
        let flags = entry.inode.file_system.flags();
        if flags.contains(MountFlags::NO_EXECUTION) {
            return Err(Errno::EACCES);
        }
        entry.inode.check(&self.subject(), Permission::EXECUTE)?;
        let Body::Regular(regular) = &entry.inode.body else {
            return Err(Errno::EACCES);
        };
        // `open_entry` does not check the permissions (`created` is true), because execution does not require read
        // permission.
        let request = OpenRequest::new(raw::O_RDONLY, 0)?;
        let open = self.open_entry(entry, request, true)?;
        regular.begin_executing()?;
        Ok(Executable { open })
    }
}

impl Executable {
    fn regular(&self) -> Option<&Regular> {
        match &self.open.inode().body {
            Body::Regular(regular) => Some(regular),
            Body::Directory(_)
            | Body::Symlink(_)
            | Body::Character(_)
            | Body::Block(_)
            | Body::Fifo(_)
            | Body::Socket
            | Body::Console(_)
            | Body::Anonymous
            | Body::Generated(_) => None,
        }
    }

    /// Returns the open file of the program.
    #[must_use]
    pub fn open_file(&self) -> &Arc<OpenFile> {
        &self.open
    }

    /// Returns the open file as a memory object, which the caller maps.
    #[must_use]
    pub fn object(&self) -> Arc<dyn Object<M>> {
        self.open.clone()
    }

    /// Returns the directory entry through which the program was found.
    #[must_use]
    pub fn entry(&self) -> &Arc<Dentry> {
        &self.open.entry
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.regular().map_or(0, Regular::size)
    }

    /// Reads from `offset`. Returns the number of bytes read, which is less than the length of `bytes` at the end of
    /// the file.
    ///
    /// # Errors
    /// The errors of [`Regular::read_at`].
    pub fn read_at(&self, vfs: &Vfs, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.regular()
            .map_or(Ok(0), |regular| regular.read_at(vfs, offset, bytes))
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if let Some(regular) = self.regular() {
            regular.end_executing();
        }
    }
}
