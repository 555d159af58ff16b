//! Inodes: the contents, owner, permissions and times of a file.

use crate::{
    fs::{
        attributes::{Attributes, DeviceNumber, Moment},
        caller::Caller,
        console::ConsoleStream,
        dentry::Dentry,
        device::Device,
        disk_node::DiskNode,
        entries::Entries,
        file_system::{FileSystem, FileSystemKind},
        generated::{GeneratedNode, SETTING_NUMBERS},
        kind::Kind,
        locks::{FileLocks, waits::Locked},
        permission::{
            Owner, Permission, Subject, before_write, inherited, permitted, permitted_setting,
            sets_ids,
        },
        pipe::Pipe,
        regular::Regular,
        tmpfs::MountFlags,
        xattrs::Xattrs,
    },
    user::PATH_MAX,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, Rank};

/// The contents of an inode, by type.
pub enum Body {
    /// A regular file, whose data is in page frames.
    Regular(Regular),
    /// Directory entries.
    Directory(Lock<Entries<Arc<Dentry>>>),
    /// The target path of a symbolic link.
    Symlink(Box<[u8]>),
    /// A character device.
    Character(Device),
    /// A disk.
    Block(Arc<dyn DiskNode>),
    /// A pipe, named or anonymous.
    Fifo(Arc<Pipe>),
    /// Standard input, output or error.
    Console(ConsoleStream),
    /// A socket. The registry of bound sockets finds it by device number and inode number.
    Socket,
    /// An anonymous inode: that of a descriptor that refers to no file.
    Anonymous,
    /// A node whose contents are generated on access, such as those of `/proc` and `/sys`.
    Generated(Box<dyn GeneratedNode>),
}

impl Body {
    /// Creates an empty directory.
    #[must_use]
    pub const fn directory() -> Self {
        Self::Directory(Lock::new(Rank::File, Entries::new()))
    }
}

/// The part of an inode that `chmod`, `chown`, `utimensat` and accesses to the file change.
#[derive(Clone, Copy, Debug)]
pub struct Metadata {
    /// The twelve permission bits.
    pub permissions: u32,
    /// Owner and group.
    pub owner: Owner,
    /// Number of links. A directory has two links plus one for each subdirectory.
    pub links: u32,
    /// Last access.
    pub accessed: Moment,
    /// Last change of the contents.
    pub modified: Moment,
    /// Last change of the contents or the metadata.
    pub changed: Moment,
    /// Creation time.
    pub created: Moment,
}

/// An inode.
pub struct Inode {
    /// The file system that the inode is in.
    pub file_system: Arc<FileSystem>,
    /// The inode number, which is unique in that file system.
    pub number: u64,
    /// The contents, depending on the type of the file.
    pub body: Body,
    /// Advisory locks.
    pub locks: FileLocks,
    /// Extended attributes.
    pub xattrs: Xattrs,
    metadata: Lock<Metadata>,
}

impl Inode {
    /// Creates an inode with a new number. The link count is 1, or 2 for a directory.
    #[must_use]
    pub fn new(
        file_system: &Arc<FileSystem>,
        body: Body,
        permissions: u32,
        owner: Owner,
        now: Moment,
    ) -> Self {
        let number = file_system.next_number();
        Self::numbered(file_system, number, body, permissions, owner, now)
    }

    /// Creates an inode with the given number. The file systems that generate their contents choose the numbers.
    #[must_use]
    pub fn numbered(
        file_system: &Arc<FileSystem>,
        number: u64,
        body: Body,
        permissions: u32,
        owner: Owner,
        now: Moment,
    ) -> Self {
        let links = match &body {
            Body::Directory(_) => 2,
            Body::Generated(node) => node.links(),
            Body::Regular(_)
            | Body::Symlink(_)
            | Body::Character(_)
            | Body::Block(_)
            | Body::Fifo(_)
            | Body::Socket
            | Body::Console(_)
            | Body::Anonymous => 1,
        };
        let metadata = Metadata {
            permissions: permissions & 0o7777,
            owner,
            links,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
        };
        file_system.node_made();
        Self {
            file_system: file_system.clone(),
            number,
            body,
            locks: FileLocks::new(),
            xattrs: Xattrs::default(),
            metadata: Lock::new(Rank::File, metadata),
        }
    }

    /// Returns the type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::Regular(_) => Kind::Regular,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Character(_) => Kind::Character,
            Body::Block(_) => Kind::Block,
            Body::Fifo(_) => Kind::Fifo,
            Body::Socket => Kind::Socket,
            Body::Console(stream) => stream.kind(),
            Body::Anonymous => Kind::Anonymous,
            Body::Generated(node) => node.kind(),
        }
    }

    /// Returns the generated node; `None` for an inode of another type.
    #[must_use]
    pub fn generated(&self) -> Option<&dyn GeneratedNode> {
        match &self.body {
            Body::Generated(node) => Some(&**node),
            Body::Regular(_)
            | Body::Directory(_)
            | Body::Symlink(_)
            | Body::Character(_)
            | Body::Block(_)
            | Body::Fifo(_)
            | Body::Socket
            | Body::Console(_)
            | Body::Anonymous => None,
        }
    }

    /// Returns the contents of a regular file; `None` for other types.
    #[must_use]
    pub fn regular(&self) -> Option<&Regular> {
        match &self.body {
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

    /// Returns whether the inode is a directory, in any file system.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind() == Kind::Directory
    }

    /// Returns a copy of the metadata.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        *self.metadata.lock()
    }

    /// Updates the metadata under its lock.
    pub fn change(&self, change: impl FnOnce(&mut Metadata)) {
        change(&mut self.metadata.lock());
    }

    /// Records a change of the contents at `now`.
    pub fn touch_modified(&self, now: Moment) {
        self.change(|metadata| {
            metadata.modified = now;
            metadata.changed = now;
        });
    }

    /// Clears the set-id bits of a regular file, as [`before_write`] specifies, before the calling process changes the
    /// contents (`file_remove_privs` in `fs/inode.c` of Linux 7.3).
    pub fn drop_set_ids(&self, caller: &dyn Caller) {
        if !sets_ids(self.metadata.lock().permissions) || self.kind() != Kind::Regular {
            return;
        }
        let (subject, now) = (caller.subject(), caller.vfs().now());
        self.change(|metadata| {
            let (mode, group) = (metadata.permissions, metadata.owner.group);
            let left = before_write(&subject, mode, group);
            if left != mode {
                metadata.permissions = left;
                metadata.changed = now;
            }
        });
    }

    /// Records an access at `now`, as the mount's flags specify: never, always, or by the `relatime` rule. Under that
    /// rule, the time is updated only if the file has changed since the last recorded access, or if that access is a
    /// day old (`relatime_need_update` in `fs/inode.c` of Linux 7.2).
    pub fn touch_accessed(&self, now: Moment) {
        const DAY: i64 = 24 * 60 * 60;
        let flags = self.file_system.flags();
        if flags.contains(MountFlags::NO_ACCESS_TIMES) {
            return;
        }
        let mut metadata = self.metadata.lock();
        if !flags.contains(MountFlags::RELATIVE_TIMES)
            || metadata.accessed <= metadata.modified
            || metadata.accessed <= metadata.changed
            || now.seconds - metadata.accessed.seconds >= DAY
        {
            metadata.accessed = now;
        }
    }

    /// Checks that `subject` has all permissions in `wanted`.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check(&self, subject: &Subject, wanted: Permission) -> Result<(), Errno> {
        let metadata = self.metadata();
        let (mode, owner) = (metadata.permissions, metadata.owner);
        let may = if self.is_setting() {
            permitted_setting(subject, mode, wanted)
        } else {
            permitted(subject, mode, owner, self.is_directory(), wanted)
        };
        may.then_some(()).ok_or(Errno::EACCES)
    }

    /// Returns whether the file system can store the contents of the inode. hugetlbfs cannot store the target of a
    /// symbolic link, because nothing can be written to its page cache (`hugetlbfs_write_begin`).
    pub(in crate::fs) fn has_place_for_contents(&self) -> bool {
        let in_pool = self.file_system.kind == FileSystemKind::Hugetlb;
        !in_pool || !matches!(self.body, Body::Symlink(_))
    }

    /// Returns whether the inode is a node of `/proc/sys`.
    fn is_setting(&self) -> bool {
        let is_proc = self.file_system.kind == FileSystemKind::Proc;
        is_proc && SETTING_NUMBERS.contains(&self.number)
    }

    /// Checks that `subject` is allowed to change the inode's attributes: it must be the owner or root.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_owner(&self, subject: &Subject) -> Result<(), Errno> {
        if subject.user == 0 || subject.user == self.metadata().owner.user {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    /// Sets the permissions and group that a new inode inherits from its directory `parent` (see [`inherited`]). The
    /// caller must not have added a name for the inode yet.
    pub fn inherit(&self, parent: &Self, subject: &Subject) {
        let parent = parent.metadata();
        let directory = self.is_directory();
        self.change(|metadata| {
            let own = (metadata.permissions, metadata.owner.group);
            let folder = (parent.permissions, parent.owner.group);
            (metadata.permissions, metadata.owner.group) =
                inherited(subject, folder, own, directory);
        });
    }

    /// Returns the attributes that `stat` reports. The size of some nodes of `/proc` depends on the calling process.
    #[must_use]
    pub fn attributes(&self, caller: Option<&dyn Caller>) -> Attributes {
        let mut metadata = self.metadata();
        let (size, blocks, special) = match &self.body {
            Body::Regular(regular) => (regular.size(), regular.blocks(), DeviceNumber::default()),
            Body::Symlink(target) => (target.len() as u64, 0, DeviceNumber::default()),
            Body::Character(device) => (0, 0, device.number()),
            Body::Block(disk) => (0, 0, disk.device_number()),
            // tmpfs reports twenty bytes per entry, including `.` and `..`; hugetlbfs reports a size of 0.
            Body::Directory(entries) => {
                let entries = entries.lock();
                let count = entries.len() as u64 + 2;
                // A link count of 1 means that the number of subdirectories is unknown, as on btrfs.
                if entries.is_partial() {
                    metadata.links = 1;
                }
                let in_pool = self.file_system.kind == FileSystemKind::Hugetlb;
                let size = if in_pool { 0 } else { count * 20 };
                (size, 0, DeviceNumber::default())
            }
            Body::Fifo(_) | Body::Socket | Body::Anonymous => (0, 0, DeviceNumber::default()),
            Body::Console(stream) => (0, 0, stream.special()),
            Body::Generated(node) => {
                metadata.links = node.links();
                (node.size(caller), 0, DeviceNumber::default())
            }
        };
        Attributes {
            device: self.file_system.device,
            inode: self.number,
            kind: self.kind(),
            permissions: metadata.permissions,
            links: metadata.links,
            user: metadata.owner.user,
            group: metadata.owner.group,
            special,
            size,
            blocks,
            block_size: self.file_system.kind.block_size(),
            accessed: metadata.accessed,
            modified: metadata.modified,
            changed: metadata.changed,
            created: metadata.created,
        }
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if the inode is not a symbolic link, `ENOENT` for a link of `/proc` if there is no `caller`, and the
    /// errors of links of `/proc`.
    pub fn link(&self, caller: Option<&dyn Caller>) -> Result<Link, Errno> {
        match &self.body {
            Body::Symlink(target) => Ok(Link::Path(target.to_vec())),
            Body::Generated(node) => node.link(caller.ok_or(Errno::ENOENT)?),
            Body::Regular(_)
            | Body::Directory(_)
            | Body::Character(_)
            | Body::Block(_)
            | Body::Fifo(_)
            | Body::Socket
            | Body::Console(_)
            | Body::Anonymous => Err(Errno::EINVAL),
        }
    }
}

impl Inode {
    /// Returns the text that `readlink` returns for a symbolic link. For a link that refers directly to a directory
    /// entry, this is the present path of the entry.
    ///
    /// # Errors
    /// The errors of [`Self::link`], `ENOMEM`, `ENAMETOOLONG`.
    pub fn shown_link(&self, caller: &dyn Caller) -> Result<Vec<u8>, Errno> {
        match self.link(Some(caller))? {
            Link::Path(target) => Ok(target),
            Link::Entry(entry) => {
                let path = entry.shown_path(&caller.fs().root());
                let path = path.map_err(|_| Errno::ENOMEM)?;
                // The path and its NUL must fit into a page (Linux 7.2 `fs/proc/base.c`, `do_proc_readlink`).
                if path.len() < PATH_MAX {
                    Ok(path)
                } else {
                    Err(Errno::ENAMETOOLONG)
                }
            }
        }
    }
}

impl Locked for Inode {
    fn locks(&self) -> &FileLocks {
        &self.locks
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.file_system.node_gone();
        let space = self.xattrs.space();
        if space > 0 {
            self.file_system.return_xattr_space(space);
        }
    }
}

/// The target of a symbolic link.
pub enum Link {
    /// A path, which is resolved from the directory of the link.
    Path(Vec<u8>),
    /// A directory entry itself, independent of its path (`/proc/PID/fd/N`, `exe`, `cwd`, `root`).
    Entry(Arc<Dentry>),
}
