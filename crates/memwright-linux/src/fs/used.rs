//! Entries held by open files, and by the root and working directories of processes.

use super::dentry::Dentry;
use alloc::sync::Arc;
use core::ops::Deref;

/// A directory entry that counts as a user of its file system. A detached file system is freed when it has no users.
pub struct Used(Arc<Dentry>);

impl Used {
    /// Holds an entry.
    #[must_use]
    pub fn new(entry: Arc<Dentry>) -> Self {
        entry.inode.file_system.begin_use();
        Self(entry)
    }
}

impl Deref for Used {
    type Target = Arc<Dentry>;

    fn deref(&self) -> &Arc<Dentry> {
        &self.0
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.0.inode.file_system.end_use();
    }
}
