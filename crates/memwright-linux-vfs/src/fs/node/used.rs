//! References to directory entries. Each reference counts as a user of the entry's file system.

use crate::fs::file_system::FileSystem;
use alloc::sync::Arc;
use core::ops::Deref;

/// A reference of an open file to its directory entry, or of a process to its root or working directory. It counts as a
/// user of the entry's file system. A detached file system is freed when it has no users. `E` is the type of directory
/// entries.
pub struct Used<E: AsRef<FileSystem>>(Arc<E>);

impl<E: AsRef<FileSystem>> Used<E> {
    /// Adds a user to the entry's file system.
    #[must_use]
    pub fn new(entry: Arc<E>) -> Self {
        E::as_ref(&entry).begin_use();
        Self(entry)
    }
}

impl<E: AsRef<FileSystem>> Deref for Used<E> {
    type Target = Arc<E>;

    fn deref(&self) -> &Arc<E> {
        &self.0
    }
}

impl<E: AsRef<FileSystem>> Drop for Used<E> {
    fn drop(&mut self) {
        E::as_ref(&self.0).end_use();
    }
}
