//! File systems and their types.

use crate::fs::{
    attributes::{DeviceNumber, SystemStatus},
    lower_tree::Lower,
    mounted::{Files, Mounted},
    tmpfs::{MountFlags, NODE_SIZE},
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use memwright::object::HUGE_BYTES;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_table::FrameKind;

/// The type of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// tmpfs: the root file system, and each tmpfs that is mounted.
    Tmpfs,
    /// The file system of `/dev`.
    Devtmpfs,
    /// The file system of `/proc`.
    Proc,
    /// The file system of `/sys`.
    Sysfs,
    /// The file system of `/sys/fs/cgroup`.
    Cgroup,
    /// The file system of anonymous pipes, which is not mounted.
    Pipe,
    /// The file system of sockets, which is not mounted.
    Socket,
    /// The file system of `memfd_create` files, which is not mounted.
    Memory,
    /// hugetlbfs: the file system of `memfd_create` files with huge pages, and each hugetlbfs that is mounted.
    Hugetlb,
    /// The file system of anonymous inodes, which belong to descriptors that refer to no file (`anon_inodefs`).
    Anonymous,
}

/// `PIPEFS_MAGIC` of `include/uapi/linux/magic.h`.
const PIPEFS_MAGIC: u32 = 0x5049_5045;
/// `SOCKFS_MAGIC` of `include/uapi/linux/magic.h`.
const SOCKFS_MAGIC: u32 = 0x534f_434b;
/// `ANON_INODE_FS_MAGIC` of `include/uapi/linux/magic.h`.
const ANON_INODE_FS_MAGIC: u32 = 0x0904_1934;
/// `SYSFS_MAGIC` of `include/uapi/linux/magic.h`.
const SYSFS_MAGIC: u32 = 0x6265_6572;

impl FileSystemKind {
    /// Returns the name that `/proc/mounts` and `/proc/filesystems` show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tmpfs | Self::Memory => "tmpfs",
            Self::Devtmpfs => "devtmpfs",
            Self::Proc => "proc",
            Self::Sysfs => "sysfs",
            Self::Cgroup => "cgroup2",
            Self::Pipe => "pipefs",
            Self::Socket => "sockfs",
            Self::Hugetlb => "hugetlbfs",
            Self::Anonymous => "anon_inodefs",
        }
    }

    /// Returns the magic number that `statfs` reports.
    #[must_use]
    pub const fn magic(self) -> u32 {
        match self {
            Self::Tmpfs | Self::Memory | Self::Devtmpfs => raw::TMPFS_MAGIC,
            Self::Proc => raw::PROC_SUPER_MAGIC,
            Self::Sysfs => SYSFS_MAGIC,
            Self::Cgroup => raw::CGROUP2_SUPER_MAGIC,
            Self::Pipe => PIPEFS_MAGIC,
            Self::Socket => SOCKFS_MAGIC,
            Self::Hugetlb => raw::HUGETLBFS_MAGIC,
            Self::Anonymous => ANON_INODE_FS_MAGIC,
        }
    }

    /// Returns the block size in bytes that `st_blksize` reports.
    #[must_use]
    pub const fn block_size(self) -> u32 {
        match self {
            Self::Proc => 1024,
            Self::Hugetlb => HUGE_BYTES as u32,
            Self::Tmpfs
            | Self::Memory
            | Self::Devtmpfs
            | Self::Sysfs
            | Self::Cgroup
            | Self::Pipe
            | Self::Socket
            | Self::Anonymous => 4096,
        }
    }

    /// Returns whether `statfs` reports a capacity and the memory that the files use. For `memfd_create` files it
    /// reports neither, because they have no common limit.
    const fn in_memory(self) -> bool {
        match self {
            Self::Tmpfs | Self::Devtmpfs => true,
            Self::Memory
            | Self::Proc
            | Self::Sysfs
            | Self::Cgroup
            | Self::Pipe
            | Self::Socket
            | Self::Hugetlb
            | Self::Anonymous => false,
        }
    }
}

/// The value of `most_nodes` for no limit.
const ANY: u64 = u64::MAX;

/// A file system.
pub struct FileSystem {
    /// Which file system it is, such as tmpfs or procfs.
    pub kind: FileSystemKind,
    /// The device number: an anonymous device with major number 0.
    pub device: DeviceNumber,
    /// The mount id.
    pub mount: u64,
    /// The options and limits with which a program mounted the file system; `None` if no program did.
    pub mounted: Option<Mounted>,
    /// The lower tree, if the user of the command gave one (`--root`).
    pub lower: Option<Lower>,
    next_number: AtomicU64,
    /// Number of users: open files in the file system, and root and working directories of processes.
    users: AtomicU64,
    /// A flag of the mount tree. It is set when the file system loses its last user after the file system was detached.
    idle: Option<Arc<AtomicBool>>,
    detached: AtomicBool,
    /// Number of inodes.
    nodes: AtomicU64,
    most_nodes: AtomicU64,
    /// Inode space that extended attributes use, in bytes. It counts against the limit on inodes.
    xattr_space: AtomicU64,
}

impl FileSystem {
    /// Creates a file system. `minor` is its minor device number and its mount id.
    #[must_use]
    pub const fn new(kind: FileSystemKind, minor: u32) -> Self {
        Self {
            kind,
            device: DeviceNumber::new(0, minor),
            mount: minor as u64,
            mounted: None,
            lower: None,
            next_number: AtomicU64::new(1),
            users: AtomicU64::new(0),
            idle: None,
            detached: AtomicBool::new(false),
            nodes: AtomicU64::new(0),
            most_nodes: AtomicU64::new(ANY),
            xattr_space: AtomicU64::new(0),
        }
    }

    /// Returns the file system with a limit of `nodes` inodes.
    #[must_use]
    pub fn with_most_nodes(self, nodes: u64) -> Self {
        self.most_nodes.store(nodes, Ordering::Relaxed);
        self
    }

    /// Returns the file system with the options with which a program mounted it.
    #[must_use]
    pub fn with_mounted(mut self, mounted: Mounted) -> Self {
        self.set_most_nodes(mounted.nodes());
        self.mounted = Some(mounted);
        self
    }

    /// Returns the file system with the flag `idle`, which is set when the file system loses its last user after it was
    /// detached.
    #[must_use]
    pub fn with_idle(mut self, idle: &Arc<AtomicBool>) -> Self {
        self.idle = Some(idle.clone());
        self
    }

    /// Adds a user.
    pub fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a user. Sets the flag `idle` if this was the last user and the file system has been detached.
    pub fn end_use(&self) {
        if self.users.fetch_sub(1, Ordering::SeqCst) == 1
            && self.detached.load(Ordering::SeqCst)
            && let Some(idle) = &self.idle
        {
            idle.store(true, Ordering::SeqCst);
        }
    }

    /// Returns whether the file system has users. A path walk does not count as a user.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.users.load(Ordering::SeqCst) > 0
    }

    /// Records that the file system was detached from the tree. From now on, the loss of its last user sets `idle`.
    pub fn detach(&self) {
        self.detached.store(true, Ordering::SeqCst);
    }

    /// Returns the flags of the mount.
    #[must_use]
    pub fn flags(&self) -> MountFlags {
        let mounted = self.mounted.as_ref().map(Mounted::flags);
        mounted.unwrap_or(MountFlags::RELATIVE_TIMES)
    }

    /// Counts an inode that was created.
    pub fn node_made(&self) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts a freed inode from the count of inodes.
    pub fn node_gone(&self) {
        self.nodes.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of inodes.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Sets the limit on inodes to `nodes`, where 0 means no limit.
    pub fn set_most_nodes(&self, nodes: u64) {
        let most = if nodes == 0 { ANY } else { nodes };
        self.most_nodes.store(most, Ordering::Relaxed);
    }

    /// Returns the number of inodes, plus the inode space of their extended attributes in units of `NODE_SIZE`, rounded
    /// up.
    #[must_use]
    pub fn nodes_used(&self) -> u64 {
        let space = self.xattr_space.load(Ordering::Relaxed);
        self.nodes() + space.div_ceil(NODE_SIZE)
    }

    /// Returns whether the inodes and the inode space of their extended attributes exceed the limit on inodes.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.nodes_used() > self.most_nodes.load(Ordering::Relaxed)
    }

    /// Returns whether the files can have extended attributes.
    #[must_use]
    pub const fn has_xattrs(&self) -> bool {
        match self.kind {
            FileSystemKind::Tmpfs | FileSystemKind::Devtmpfs | FileSystemKind::Memory => true,
            FileSystemKind::Proc
            | FileSystemKind::Sysfs
            | FileSystemKind::Cgroup
            | FileSystemKind::Pipe
            | FileSystemKind::Socket
            | FileSystemKind::Hugetlb
            | FileSystemKind::Anonymous => false,
        }
    }

    /// Charges `space` bytes of inode space for an extended attribute (Linux 6.18 `mm/shmem.c`,
    /// `shmem_xattr_handler_set`).
    ///
    /// # Errors
    /// `ENOSPC` at the limit on inodes.
    pub fn take_xattr_space(&self, space: u64) -> Result<(), Errno> {
        self.xattr_space.fetch_add(space, Ordering::Relaxed);
        if self.is_full() {
            self.return_xattr_space(space);
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    /// Uncharges `space` bytes of inode space for extended attributes that were removed.
    pub fn return_xattr_space(&self, space: u64) {
        self.xattr_space.fetch_sub(space, Ordering::Relaxed);
    }

    /// Allocates the next inode number.
    pub fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the status that `statfs` reports. The capacity is the limit with which a program mounted the file
    /// system, or half of memory, which is the default for a tmpfs.
    #[must_use]
    pub fn status(&self, memory: &Memory) -> SystemStatus {
        let counted = self.kind.in_memory();
        let frames = memory.frames();
        let (room, used) = (frames.total() / 2, frames.used_by(FrameKind::Object));
        let files = self.mounted.as_ref().map(|mounted| &mounted.files);
        let (blocks, free) = match files {
            Some(Files::Tmpfs(tmpfs)) => {
                let most = tmpfs.room.most().unwrap_or(0);
                (most, most.saturating_sub(tmpfs.room.used()))
            }
            Some(Files::Hugetlbfs(hugetlbfs)) => hugetlbfs.pages(),
            None if counted => (room, room.saturating_sub(used).min(frames.free())),
            None => (0, 0),
        };
        let most_nodes = self.most_nodes.load(Ordering::Relaxed);
        let (nodes, free_nodes) = match files {
            // hugetlbfs reports inodes only if it limits or reserves pages. Without a limit on inodes, it reports -1.
            Some(Files::Hugetlbfs(hugetlbfs)) if hugetlbfs.subpool.is_none() => (0, 0),
            Some(Files::Hugetlbfs(_)) if most_nodes == ANY => (ANY, ANY),
            _ if most_nodes == ANY => (0, 0),
            Some(_) | None => (most_nodes, most_nodes.saturating_sub(self.nodes_used())),
        };
        SystemStatus {
            nodes,
            free_nodes,
            magic: self.kind.magic(),
            block_size: match self.kind {
                FileSystemKind::Hugetlb => HUGE_BYTES,
                _ => 4096,
            },
            blocks,
            free,
            flags: self.flags(),
            device: self.device,
        }
    }
}
