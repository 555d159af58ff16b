//! Names that are held for long: by open files, and as places of processes.

use super::dentry::Dentry;
use alloc::sync::Arc;
use core::ops::Deref;

/// A name whose file system counts that it is used. A file system out of its place goes when it counts none.
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
