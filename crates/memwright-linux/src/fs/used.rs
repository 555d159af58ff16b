//! Names that open files and the root and working directories of processes hold.

use super::dentry::Dentry;
use alloc::sync::Arc;
use core::ops::Deref;

/// A name that counts as a user of its file system. A detached file system goes when it has no users.
pub struct Used(Arc<Dentry>);

impl Used {
    /// Uses a name.
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
