//! The types of the mount tree: the root, the mounted file systems, and the file systems that are not mounted.

use crate::{
    changes::Changes,
    fs::{file_system::FileSystem, namespace::Namespace},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, AtomicU32};
use memwright_linux_abi::Memory;
use memwright_linux_base::sync::Lock;

/// A mounted file system, whose directory entries are of type `E`.
pub(in crate::fs) struct Mount<E> {
    pub(in crate::fs) root: Arc<E>,
    /// The directory on which the file system is mounted; `None` for the root.
    pub(in crate::fs) at: Option<Arc<E>>,
}

impl<E: AsRef<FileSystem>> Mount<E> {
    /// Returns the mount id of the file system that contains the mount point. The root is its own parent.
    pub(in crate::fs) fn upper(&self) -> u64 {
        let above = self.at.as_ref().unwrap_or(&self.root);
        E::as_ref(above).mount
    }
}

/// The table of mounts.
pub(in crate::fs) struct MountTable<E> {
    /// The mounts by id. Ids are assigned in the order of mounting.
    pub(in crate::fs) mounts: BTreeMap<u64, Mount<E>>,
    /// Pairs of the id of a parent mount and the id of a mount directly below it.
    pub(in crate::fs) within: BTreeSet<(u64, u64)>,
}

impl<E> Default for MountTable<E> {
    fn default() -> Self {
        Self {
            mounts: BTreeMap::new(),
            within: BTreeSet::new(),
        }
    }
}

impl<E: AsRef<FileSystem>> MountTable<E> {
    /// Creates a table that contains only the root mount.
    pub(in crate::fs) fn new(root: &Arc<E>) -> Self {
        let mut table = Self::default();
        let mount = Mount {
            root: root.clone(),
            at: None,
        };
        table.insert(E::as_ref(root).mount, mount);
        table
    }

    /// Adds the mount with the id `number`.
    pub(in crate::fs) fn insert(&mut self, number: u64, mount: Mount<E>) {
        if mount.at.is_some() {
            self.within.insert((mount.upper(), number));
        }
        self.mounts.insert(number, mount);
    }

    /// Removes the mount with the id `number` and returns it.
    pub(in crate::fs) fn remove(&mut self, number: u64) -> Option<Mount<E>> {
        let mount = self.mounts.remove(&number)?;
        self.within.remove(&(mount.upper(), number));
        Some(mount)
    }

    /// Returns the ids of the mounts directly below the mount `number`.
    pub(in crate::fs) fn within(&self, number: u64) -> impl Iterator<Item = u64> + '_ {
        let numbers = self.within.range((number, 0)..=(number, u64::MAX));
        numbers.map(|(_, number)| *number)
    }
}

/// The mount tree of the system. Its directory entries are of type `E`.
pub struct Mounts<E> {
    /// The root of the tree.
    pub root: Arc<E>,
    /// The entries of standard input, output and error.
    pub streams: [Arc<E>; 3],
    /// Creates, removes and renames directory entries, under the lock of the tree.
    pub names: Namespace,
    pub(in crate::fs) memory: Arc<Memory>,
    pub(in crate::fs) root_files: Arc<FileSystem>,
    pub(in crate::fs) pipes: Arc<FileSystem>,
    pub(in crate::fs) socket_files: Arc<FileSystem>,
    pub(in crate::fs) memory_files: Arc<FileSystem>,
    pub(in crate::fs) huge_files: Arc<FileSystem>,
    pub(in crate::fs) anonymous: Arc<FileSystem>,
    pub(in crate::fs) mounts: Lock<MountTable<E>>,
    pub(in crate::fs) next_mount: AtomicU32,
    /// Counts the changes of the mount table, and wakes the threads that wait for one.
    pub changes: Changes,
    /// The roots of file systems that were detached while they were in use.
    pub(in crate::fs) detached: Lock<Vec<Arc<E>>>,
    /// Set when a detached file system may have lost its last user since the last check.
    pub(in crate::fs) idle: Arc<AtomicBool>,
}

impl<E> Mounts<E> {
    /// Returns the file system of anonymous pipes.
    #[must_use]
    pub fn pipes(&self) -> &Arc<FileSystem> {
        &self.pipes
    }

    /// Returns the file system of sockets.
    #[must_use]
    pub fn socket_files(&self) -> &Arc<FileSystem> {
        &self.socket_files
    }

    /// Returns the file system of `memfd_create` files.
    #[must_use]
    pub fn memory_files(&self) -> &Arc<FileSystem> {
        &self.memory_files
    }

    /// Returns the file system of `memfd_create` files with huge pages.
    #[must_use]
    pub fn huge_files(&self) -> &Arc<FileSystem> {
        &self.huge_files
    }
}
