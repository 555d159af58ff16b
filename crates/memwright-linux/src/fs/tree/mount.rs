//! Mounting on a directory, and unmounting.

use super::Namespace;
use crate::{
    errno::Errno,
    fs::{dentry::Dentry, inode::Body},
    paged::Paged,
    sync::LockGuard,
};
use alloc::sync::Arc;

impl Namespace {
    /// Mounts the file system with this root on `at`, or on top of what is mounted there, if `list` accepts the mount
    /// point.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed; those of `list`.
    pub fn cover(
        &self,
        at: &Arc<Dentry>,
        root: &Arc<Dentry>,
        list: impl FnOnce(&Arc<Dentry>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let _guard = self.0.lock();
        if at.is_removed() {
            return Err(Errno::ENOENT);
        }
        let at = at.clone().crossed();
        list(&at)?;
        at.mount(root.clone());
        Ok(())
    }

    /// Unmounts the file system of `root` from `at`, if it is mounted there and unused: apart from its entries, `root`
    /// has `known` references, and `is_bound` returns false. The returned guard prevents changes of the tree.
    ///
    /// Check and unmount are atomic: meanwhile no path walk enters the file system, changes its entries or ascends in
    /// it.
    ///
    /// # Errors
    /// `EBUSY`.
    pub fn uncover(
        &self,
        at: &Dentry,
        root: &Arc<Dentry>,
        known: usize,
        is_bound: impl FnOnce() -> bool,
    ) -> Result<LockGuard<'_, ()>, Errno> {
        let guard = self.0.lock();
        let stays = |covering: &Arc<Dentry>| {
            !Arc::ptr_eq(covering, root) || is_used(root, known) || is_bound()
        };
        at.unmount_unless(stays).ok_or(Errno::EBUSY)?;
        Ok(guard)
    }

    /// Returns whether a detached file system is used by the caller only. The guard prevents changes of the tree.
    #[must_use]
    pub fn is_abandoned(&self, _kept: &LockGuard<'_, ()>, root: &Arc<Dentry>) -> bool {
        !is_used(root, 1)
    }
}

/// Returns whether an entry from `root` down has references other than the tree's, or a file system is mounted on one:
/// its root holds the directory above it. `root` itself has `known` other references. An open file holds its entry,
/// even a removed one, and a removed entry holds the directory that it was in.
///
/// The walk is top-down, so that a concurrent path walk downwards is found further below. If memory runs out, the file
/// system is considered used.
fn is_used(root: &Arc<Dentry>, known: usize) -> bool {
    let mut pending: Paged<Arc<Dentry>> = Paged::new();
    let (mut here, mut known) = (root.clone(), known);
    loop {
        // One more for the reference held during the check.
        let mut expected = known + 1;
        if let Body::Directory(entries) = &here.inode.body {
            let entries = entries.lock();
            expected += entries.len();
            for entry in entries.all() {
                if pending.try_push(entry.clone()).is_err() {
                    return true;
                }
            }
            // Compared under the lock of the entries, before a path walk that waits for it continues to one of them.
            if Arc::strong_count(&here) != expected {
                return true;
            }
        } else if Arc::strong_count(&here) != expected {
            return true;
        }
        match pending.pop() {
            // The reference of its directory.
            Some(next) => (here, known) = (next, 1),
            None => return false,
        }
    }
}
