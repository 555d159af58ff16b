//! Mounts and unmounts on a directory, under the lock of the tree.

use crate::fs::{dentry::Dentry, inode::Body, namespace::Namespace};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::{paged::Paged, sync::LockGuard};

impl Namespace {
    /// Mounts the file system whose root is `root` on `at`, or on the topmost file system that is already mounted
    /// there. First calls `list` with the mount point. Does not mount if `list` fails.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed, and those of `list`.
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

    /// Unmounts the file system whose root is `root` from `at`, if it is mounted there and unused. It is unused if
    /// `root` has only `known` references apart from those of its entries, no entry below has other references than the
    /// tree's, and `is_bound` returns `false`. The returned guard prevents changes of the tree.
    ///
    /// The check and the unmount are atomic: between them, no path walk enters the file system, changes its entries or
    /// ascends in it.
    ///
    /// # Errors
    /// `EBUSY` if the file system is in use or not mounted on `at`.
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

    /// Returns whether only the caller has a reference to the detached file system whose root is `root`. The guard
    /// `_kept` prevents changes of the tree.
    #[must_use]
    pub fn is_abandoned(&self, _kept: &LockGuard<'_, ()>, root: &Arc<Dentry>) -> bool {
        !is_used(root, 1)
    }
}

/// Returns whether `root` or an entry below it has references other than the tree's. `root` itself has `known` other
/// references. An open file has a reference to its entry, even if the entry was removed. A removed entry has a
/// reference to its former directory. The root of a file system that is mounted on an entry has a reference to the
/// directory of that entry, so that directory is in use too.
///
/// The check proceeds from the top down. A concurrent path walk descends too, so that the check finds it further below.
/// If memory runs out, the file system is considered used.
fn is_used(root: &Arc<Dentry>, known: usize) -> bool {
    let mut pending: Paged<Arc<Dentry>> = Paged::new();
    let (mut here, mut known) = (root.clone(), known);
    loop {
        // Include the reference `here`, which this check holds.
        let mut expected = known + 1;
        if let Body::Directory(entries) = &here.inode.body {
            let entries = entries.lock();
            expected += entries.len();
            for entry in entries.all() {
                if pending.try_push(entry.clone()).is_err() {
                    return true;
                }
            }
            // The count is compared under the lock of the entries, before a path walk that waits for this lock can
            // continue to one of the entries.
            if Arc::strong_count(&here) != expected {
                return true;
            }
        } else if Arc::strong_count(&here) != expected {
            return true;
        }
        match pending.pop() {
            // The only other reference to an entry is that of its directory.
            Some(next) => (here, known) = (next, 1),
            None => return false,
        }
    }
}
