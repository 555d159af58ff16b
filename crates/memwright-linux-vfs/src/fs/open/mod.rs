//! Opening files: creates an open file from a path and flags.

pub mod executable;

pub use executable::Executable;

use crate::fs::{
    caller::Caller,
    dentry::Dentry,
    directory::DirectoryFile,
    file_system::FileSystemKind,
    inode::{Body, Inode},
    kind::Kind,
    lower,
    name::NAME_MAX,
    open_file::{File, OpenFile},
    permission::Permission,
    pipe::{Partner, PipeEnd},
    regular::{Regular, RegularFile},
    tmpfs::MountFlags,
    tree::Change,
    walk::{Last, LastLink, Walker},
};
use alloc::{boxed::Box, sync::Arc};
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::short::Short;

/// Flags that take effect only while a file is opened. The open file does not keep them.
const CREATION_FLAGS: u32 = raw::O_CREAT | raw::O_EXCL | raw::O_NOCTTY | raw::O_TRUNC;

/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
const TMPFILE: u32 = raw::O_TMPFILE & !raw::O_DIRECTORY;

/// The flags that have an effect together with `O_PATH`.
const PATH_FLAGS: u32 = raw::O_PATH | raw::O_DIRECTORY | raw::O_NOFOLLOW | raw::O_CLOEXEC;

/// Validated arguments of `open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The `O_` flags, without those that Linux ignores.
    pub flags: u32,
    /// Permission bits of a new file, before the umask is applied.
    pub permissions: u32,
}

impl OpenRequest {
    /// Validates the flags (`build_open_flags` in `fs/open.c` of Linux 7.2).
    ///
    /// # Errors
    /// `EINVAL` for `O_TMPFILE` without write access, and for `O_CREAT` with `O_DIRECTORY`.
    pub const fn new(flags: u32, permissions: u32) -> Result<Self, Errno> {
        if flags & raw::O_PATH != 0 {
            return Ok(Self {
                flags: flags & PATH_FLAGS,
                permissions: 0,
            });
        }
        if flags & (raw::O_DIRECTORY | raw::O_CREAT) == raw::O_DIRECTORY | raw::O_CREAT {
            return Err(Errno::EINVAL);
        }
        if flags & TMPFILE != 0 {
            if flags & raw::O_DIRECTORY == 0 {
                return Err(Errno::EINVAL);
            }
            if !matches!(flags & raw::O_ACCMODE, raw::O_WRONLY | raw::O_RDWR) {
                return Err(Errno::EINVAL);
            }
        }
        Ok(Self {
            flags,
            permissions: permissions & 0o7777,
        })
    }

    const fn has(self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the permissions that opening an existing file requires.
    fn wanted(self) -> Permission {
        let mut wanted = match self.flags & raw::O_ACCMODE {
            raw::O_RDONLY => Permission::READ,
            raw::O_WRONLY => Permission::WRITE,
            _ => Permission::READ | Permission::WRITE,
        };
        wanted.set(
            Permission::WRITE,
            wanted.contains(Permission::WRITE) || self.has(raw::O_TRUNC),
        );
        wanted
    }
}

impl dyn Caller + '_ {
    /// Opens the file at `path`, which is resolved from `start`. With `O_CREAT`, creates the file if it does not exist.
    ///
    /// # Errors
    /// The errors of `open(2)`.
    pub fn open_path(
        &self,
        start: &Arc<Dentry>,
        path: &[u8],
        request: OpenRequest,
    ) -> Result<Arc<OpenFile>, Errno> {
        self.check_heap()?;
        self.check_open_files()?;
        let fs = self.fs();
        let root = fs.root();
        let walker = Walker {
            caller: Some(self),
            subject: self.subject(),
            root: &root,
        };
        let keep = request.has(raw::O_NOFOLLOW)
            || request.flags & (raw::O_CREAT | raw::O_EXCL) == raw::O_CREAT | raw::O_EXCL;
        let last_link = if keep {
            LastLink::Keep
        } else {
            LastLink::Follow
        };
        let walked = walker.walk(start, path, last_link)?;
        if !request.has(raw::O_CREAT) || request.has(raw::O_PATH) {
            let entry = walked.existing()?;
            if request.has(TMPFILE) {
                return self.open_nameless(&entry, request, fs.mask());
            }
            return self.open_entry(&entry, request, false);
        }
        // A trailing slash is an error, except after `.` and `..`, which refer to existing directories
        // (`open_last_lookups` in `fs/namei.c` of Linux 7.3).
        if walked.slash && matches!(walked.last, Last::Name(_)) {
            return Err(Errno::EISDIR);
        }
        if let Some(entry) = &walked.entry {
            if request.has(raw::O_EXCL) {
                return Err(Errno::EEXIST);
            }
            if entry.inode.is_directory() {
                return Err(Errno::EISDIR);
            }
            return self.open_entry(entry, request, false);
        }
        let Last::Name(name) = &walked.last else {
            return Err(Errno::EISDIR);
        };
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if matches!(walked.parent.inode.body, Body::Generated(_)) {
            return Err(Errno::ENOENT);
        }
        let now = self.vfs().now();
        let change = Change {
            subject: self.subject(),
            now,
        };
        let file_system = &walked.parent.inode.file_system;
        let permissions = request.permissions & !fs.mask();
        let inode =
            self.vfs()
                .mounts
                .new_regular(file_system, permissions, self.subject().owner(), now)?;
        match self
            .vfs()
            .mounts
            .names
            .create(&change, &walked.parent, name, inode)
        {
            Ok(entry) => self.open_entry(&entry, request, true),
            // Another thread has created the file since the lookup.
            Err(Errno::EEXIST) if !request.has(raw::O_EXCL) => {
                let entry = walker.lookup(&walked.parent, name)?;
                self.open_entry(&entry, request, false)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates and opens an unnamed file in the file system of `directory` (`O_TMPFILE`).
    fn open_nameless(
        &self,
        directory: &Arc<Dentry>,
        request: OpenRequest,
        mask: u32,
    ) -> Result<Arc<OpenFile>, Errno> {
        if !directory.inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if !matches!(directory.inode.body, Body::Directory(_)) {
            return Err(Errno::EOPNOTSUPP);
        }
        directory
            .inode
            .check(&self.subject(), Permission::WRITE | Permission::EXECUTE)?;
        let now = self.vfs().now();
        let permissions = request.permissions & !mask;
        let file_system = &directory.inode.file_system;
        let inode =
            self.vfs()
                .mounts
                .new_regular(file_system, permissions, self.subject().owner(), now)?;
        if file_system.is_full() {
            return Err(Errno::ENOSPC);
        }
        inode.inherit(&directory.inode, &self.subject());
        inode.change(|metadata| metadata.links = 0);
        let name = Short::of(format_args!("#{}", inode.number));
        let entry = Arc::new(Dentry::new(directory, name.as_bytes(), Arc::new(inode)));
        entry.mark_removed();
        self.open_entry(&entry, request, true)
    }

    /// Opens the file of `entry`. `created` is true if the caller has just created the file; the permission bits are
    /// then not checked.
    ///
    /// # Errors
    /// The errors of `open(2)`.
    pub fn open_entry(
        &self,
        entry: &Arc<Dentry>,
        request: OpenRequest,
        created: bool,
    ) -> Result<Arc<OpenFile>, Errno> {
        let inode = &entry.inode;
        let kind = inode.kind();
        if request.has(raw::O_DIRECTORY) && !request.has(TMPFILE) && kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if request.has(raw::O_PATH) {
            let open = OpenFile::new(
                Some(self.vfs()),
                entry.clone(),
                request.flags,
                Box::new(PathFile),
            );
            return Ok(Arc::new(open));
        }
        match kind {
            Kind::Symlink => return Err(Errno::ELOOP),
            Kind::Directory if request.wanted().contains(Permission::WRITE) => {
                return Err(Errno::EISDIR);
            }
            Kind::Anonymous | Kind::Socket => return Err(Errno::ENXIO),
            Kind::Directory | Kind::Regular | Kind::Character | Kind::Block | Kind::Fifo => {}
        }
        if !created {
            inode.check(&self.subject(), request.wanted())?;
        }
        // Only the owner and root are allowed to use `O_NOATIME` (`may_open` in `fs/namei.c` of Linux 7.3).
        if request.has(raw::O_NOATIME) {
            inode.check_owner(&self.subject())?;
        }
        // A file of `/sys` without a write bit cannot be opened for writing, not even by root (`kernfs_fop_open`).
        if inode.file_system.kind == FileSystemKind::Sysfs
            && request.wanted().contains(Permission::WRITE)
            && inode.metadata().permissions & 0o222 == 0
        {
            return Err(Errno::EACCES);
        }
        let devices = matches!(kind, Kind::Character | Kind::Block);
        if devices && inode.file_system.flags().contains(MountFlags::NO_DEVICES) {
            return Err(Errno::EACCES);
        }
        let file = self.operations(inode, request)?;
        if request.has(raw::O_TRUNC) && !created {
            self.truncate_at_open(inode)?;
        }
        let flags = request.flags & !CREATION_FLAGS;
        let open = OpenFile::new(Some(self.vfs()), entry.clone(), flags, file);
        Ok(Arc::new(open))
    }

    /// Truncates a file that is opened with `O_TRUNC`. Fails while the file is being executed, as an open for writing
    /// does, even if the file is opened read-only (Linux 7.3 `fs/namei.c`, `handle_truncate`).
    fn truncate_at_open(&self, inode: &Inode) -> Result<(), Errno> {
        let Body::Regular(regular) = &inode.body else {
            return Ok(());
        };
        regular.begin_writing()?;
        inode.drop_set_ids(self);
        let emptied = self.empty(regular);
        regular.end_writing();
        emptied?;
        inode.touch_modified(self.vfs().now());
        Ok(())
    }

    fn empty(&self, regular: &Regular) -> Result<(), Errno> {
        let _turn = regular.take_turn(self)?;
        regular.set_size(self.vfs(), 0)
    }

    /// Creates the file operations for an open of an inode. If the contents of a regular file are still in the lower
    /// tree, first copies them up.
    fn operations(&self, inode: &Arc<Inode>, request: OpenRequest) -> Result<Box<dyn File>, Errno> {
        let access = request.flags & raw::O_ACCMODE;
        let reads = access != raw::O_WRONLY;
        let writes = access != raw::O_RDONLY;
        match &inode.body {
            Body::Regular(regular) => {
                lower::copy_up(self, inode, regular)?;
                Ok(Box::new(RegularFile::new(inode, writes)?))
            }
            Body::Directory(_) => Ok(Box::new(DirectoryFile)),
            Body::Symlink(_) => Err(Errno::ELOOP),
            Body::Character(device) => match device {
                crate::fs::device::Device::Unknown(_) => Err(Errno::ENXIO),
                crate::fs::device::Device::Terminal => self.terminal(),
                device => Ok(Box::new(*device)),
            },
            Body::Block(disk) => disk.clone().open(writes && request.has(raw::O_EXCL)),
            Body::Fifo(pipe) => {
                let is_anonymous = inode.file_system.kind == FileSystemKind::Pipe;
                let partner = Partner::expected(is_anonymous, !request.has(raw::O_NONBLOCK));
                let end = PipeEnd::open_path(self, pipe, (reads, writes), partner)?;
                Ok(Box::new(end))
            }
            Body::Console(stream) => Ok(Box::new(stream.clone())),
            Body::Anonymous | Body::Socket => Err(Errno::ENXIO),
            Body::Generated(node) => node.open(self),
        }
    }

    /// Returns the file operations of `/dev/tty`: those of the first standard stream that is a terminal.
    fn terminal(&self) -> Result<Box<dyn File>, Errno> {
        let terminal = self.vfs().mounts.terminal().ok_or(Errno::ENXIO)?;
        Ok(Box::new(terminal))
    }
}

/// The file operations of an `O_PATH` descriptor, which refers to an entry of the tree and supports no operation.
struct PathFile;

impl File for PathFile {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_checked_and_cleaned() {
        let path = OpenRequest::new(raw::O_PATH | raw::O_RDWR | raw::O_CREAT, 0o777).unwrap();
        assert_eq!((path.flags, path.permissions), (raw::O_PATH, 0));
        let cases = [
            (raw::O_CREAT | raw::O_DIRECTORY, Some(Errno::EINVAL)),
            (raw::O_TMPFILE, Some(Errno::EINVAL)),
            (raw::O_TMPFILE | raw::O_RDWR, None),
            (TMPFILE | raw::O_RDWR, Some(Errno::EINVAL)),
            (raw::O_DIRECTORY, None),
        ];
        for (flags, error) in cases {
            assert_eq!(OpenRequest::new(flags, 0).err(), error, "{flags:o}");
        }
        let truncating = OpenRequest::new(raw::O_TRUNC, 0).unwrap();
        assert_eq!(truncating.wanted(), Permission::READ | Permission::WRITE);
        assert_eq!(
            OpenRequest::new(raw::O_WRONLY, 0).unwrap().wanted(),
            Permission::WRITE
        );
    }
}
