//! The file system context of a process: root, working directory and umask.

use crate::fs::{dentry::Dentry, used::Used};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use memwright_linux_base::sync::{Lock, Rank};

/// The root, working directory and umask of a process, or of several processes that share them.
pub struct FsContext {
    root: Lock<Used<Dentry>>,
    directory: Lock<Used<Dentry>>,
    mask: AtomicU32,
}

impl FsContext {
    /// Creates a context whose root and working directory are `root`, with the umask 022.
    #[must_use]
    pub fn new(root: &Arc<Dentry>) -> Self {
        Self {
            root: Lock::new(Rank::File, Used::new(root.clone())),
            directory: Lock::new(Rank::File, Used::new(root.clone())),
            mask: AtomicU32::new(0o022),
        }
    }

    /// Returns a copy for a process that is not to share this context.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self {
            root: Lock::new(Rank::File, Used::new(self.root())),
            directory: Lock::new(Rank::File, Used::new(self.directory())),
            mask: AtomicU32::new(self.mask()),
        }
    }

    /// Returns the directory where absolute paths start.
    #[must_use]
    pub fn root(&self) -> Arc<Dentry> {
        Arc::clone(&self.root.lock())
    }

    /// Returns the working directory.
    #[must_use]
    pub fn directory(&self) -> Arc<Dentry> {
        Arc::clone(&self.directory.lock())
    }

    /// Changes the root.
    pub fn set_root(&self, root: Arc<Dentry>) {
        // Drop the old root after the lock is released.
        let old = core::mem::replace(&mut *self.root.lock(), Used::new(root));
        drop(old);
    }

    /// Changes the working directory.
    pub fn set_directory(&self, directory: Arc<Dentry>) {
        let old = core::mem::replace(&mut *self.directory.lock(), Used::new(directory));
        drop(old);
    }

    /// Returns the umask.
    #[must_use]
    pub fn mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    /// Sets the umask and returns the previous one.
    pub fn set_mask(&self, mask: u32) -> u32 {
        self.mask.swap(mask & 0o777, Ordering::Relaxed)
    }
}
