//! Where a process is in the tree: root, working directory, file-creation mask.

use super::{dentry::Dentry, used::Used};
use crate::sync::{Lock, Rank};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

/// Root, working directory and mask of a process, or of several that share them.
pub struct FsContext {
    root: Lock<Used>,
    directory: Lock<Used>,
    mask: AtomicU32,
}

impl FsContext {
    /// At the root, with the mask 022.
    #[must_use]
    pub fn new(root: &Arc<Dentry>) -> Self {
        Self {
            root: Lock::new(Rank::File, Used::new(root.clone())),
            directory: Lock::new(Rank::File, Used::new(root.clone())),
            mask: AtomicU32::new(0o022),
        }
    }

    /// A copy that changes on its own.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self {
            root: Lock::new(Rank::File, Used::new(self.root())),
            directory: Lock::new(Rank::File, Used::new(self.directory())),
            mask: AtomicU32::new(self.mask()),
        }
    }

    /// Where absolute paths begin.
    #[must_use]
    pub fn root(&self) -> Arc<Dentry> {
        Arc::clone(&self.root.lock())
    }

    /// Where relative paths begin.
    #[must_use]
    pub fn directory(&self) -> Arc<Dentry> {
        Arc::clone(&self.directory.lock())
    }

    /// Moves the root.
    pub fn set_root(&self, root: Arc<Dentry>) {
        // The old one is dropped behind the lock.
        let old = core::mem::replace(&mut *self.root.lock(), Used::new(root));
        drop(old);
    }

    /// Moves the working directory.
    pub fn set_directory(&self, directory: Arc<Dentry>) {
        let old = core::mem::replace(&mut *self.directory.lock(), Used::new(directory));
        drop(old);
    }

    /// The file-creation mask.
    #[must_use]
    pub fn mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    /// Sets the mask and returns the one before.
    pub fn set_mask(&self, mask: u32) -> u32 {
        self.mask.swap(mask & 0o777, Ordering::Relaxed)
    }
}
