//! The file systems that exist, each mounted once.

use super::{
    attributes::{DeviceNumber, SystemStatus},
    tmpfs::{MountFlags, Tmpfs},
};
use crate::Memory;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use memwright::object::HUGE_BYTES;
use memwright_table::FrameKind;

/// Which file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// Files in memory: the root, `/tmp` and all else.
    Tmpfs,
    /// `/dev`.
    Devtmpfs,
    /// `/proc`.
    Proc,
    /// `/sys`.
    Sysfs,
    /// `/sys/fs/cgroup`.
    Cgroup,
    /// Pipes without names.
    Pipe,
    /// Sockets.
    Socket,
    /// Files of `memfd_create`, in memory but on no mount.
    Memory,
    /// The same of huge pages.
    Hugetlb,
    /// What stands behind descriptors that are no files.
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
    /// Its name in `/proc/mounts` and `/proc/filesystems`.
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

    /// Its magic number in `statfs`.
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

    /// Its block size, as `st_blksize` says it.
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

    /// Whether its files occupy memory that `statfs` counts.
    const fn in_memory(self) -> bool {
        match self {
            Self::Tmpfs | Self::Memory | Self::Devtmpfs => true,
            Self::Proc
            | Self::Sysfs
            | Self::Cgroup
            | Self::Pipe
            | Self::Socket
            | Self::Hugetlb
            | Self::Anonymous => false,
        }
    }
}

/// No limit of nodes.
const ANY: u64 = u64::MAX;

/// One file system.
pub struct FileSystem {
    /// Which.
    pub kind: FileSystemKind,
    /// Its device: no driver, a number of its own.
    pub device: DeviceNumber,
    /// Number of its mount.
    pub mount: u64,
    /// With what a program mounted it.
    pub tmpfs: Option<Tmpfs>,
    next_number: AtomicU64,
    /// Open files in it, and places of processes.
    users: AtomicU64,
    /// Set when the last user goes while the file system is detached.
    idle: Option<Arc<AtomicBool>>,
    detached: AtomicBool,
    /// Nodes that exist, and how many may.
    nodes: AtomicU64,
    most_nodes: AtomicU64,
}

impl FileSystem {
    /// The file system with this minor number; its mount has the same.
    #[must_use]
    pub const fn new(kind: FileSystemKind, minor: u32) -> Self {
        Self {
            kind,
            device: DeviceNumber::new(0, minor),
            mount: minor as u64,
            tmpfs: None,
            next_number: AtomicU64::new(1),
            users: AtomicU64::new(0),
            idle: None,
            detached: AtomicBool::new(false),
            nodes: AtomicU64::new(0),
            most_nodes: AtomicU64::new(ANY),
        }
    }

    /// The same with at most `nodes` named nodes.
    #[must_use]
    pub fn with_most_nodes(self, nodes: u64) -> Self {
        self.most_nodes.store(nodes, Ordering::Relaxed);
        self
    }

    /// The same as a program mounted it.
    #[must_use]
    pub fn with_tmpfs(mut self, tmpfs: Tmpfs) -> Self {
        self.set_most_nodes(tmpfs.options().nodes);
        self.tmpfs = Some(tmpfs);
        self
    }

    /// Sets `idle` when the last user goes while the file system is detached.
    #[must_use]
    pub fn with_idle(mut self, idle: &Arc<AtomicBool>) -> Self {
        self.idle = Some(idle.clone());
        self
    }

    /// Counts a user.
    pub fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts one user less.
    pub fn end_use(&self) {
        if self.users.fetch_sub(1, Ordering::SeqCst) == 1 && self.detached.load(Ordering::SeqCst) {
            if let Some(idle) = &self.idle {
                idle.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Whether it has users. A path walk in progress does not count as one.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.users.load(Ordering::SeqCst) > 0
    }

    /// Notes that it has no place in the tree any more: from now on the last user that goes sets `idle`.
    pub fn detach(&self) {
        self.detached.store(true, Ordering::SeqCst);
    }

    /// What holds for its mount.
    #[must_use]
    pub fn flags(&self) -> MountFlags {
        let mounted = self.tmpfs.as_ref().map(Tmpfs::flags);
        mounted.unwrap_or(MountFlags::RELATIVE_TIMES)
    }

    /// Counts a node that was made.
    pub fn node_made(&self) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a node that is gone.
    pub fn node_gone(&self) {
        self.nodes.fetch_sub(1, Ordering::Relaxed);
    }

    /// Nodes that exist.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Sets how many may, 0 for any number.
    pub fn set_most_nodes(&self, nodes: u64) {
        let most = if nodes == 0 { ANY } else { nodes };
        self.most_nodes.store(most, Ordering::Relaxed);
    }

    /// Whether there are more nodes than may get names.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.nodes() > self.most_nodes.load(Ordering::Relaxed)
    }

    /// The number of the next node.
    pub fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// What `statfs` reports: half of memory may become files, as a tmpfs of default size has it, unless a program mounted
    /// it with a size of its own.
    #[must_use]
    pub fn status(&self, memory: &Memory) -> SystemStatus {
        let counted = self.kind.in_memory();
        let frames = memory.frames();
        let (room, used) = (frames.total() / 2, frames.used_by(FrameKind::Object));
        let (blocks, free) = match &self.tmpfs {
            Some(tmpfs) => {
                let most = tmpfs.room.most().unwrap_or(0);
                (most, most.saturating_sub(tmpfs.room.used()))
            }
            None if counted => (room, room.saturating_sub(used).min(frames.free())),
            None => (0, 0),
        };
        let most_nodes = self.most_nodes.load(Ordering::Relaxed);
        let nodes = if most_nodes == ANY { 0 } else { most_nodes };
        SystemStatus {
            nodes,
            free_nodes: nodes.saturating_sub(self.nodes()),
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
