//! The references that open files hold to their directory entries, and processes to their root and working directories.

use crate::fs::dentry::Dentry;
use alloc::sync::Arc;
use core::ops::Deref;

/// A reference to a directory entry that is counted as a user of the entry's file system. A detached file system is
/// freed when it has no users.
pub struct Used(Arc<Dentry>);

impl Used {
    /// Adds a user to the entry's file system.
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
