//! Mounts and unmounts file systems on directories, under the lock of the tree.

use crate::fs::{dentry::Dentry, inode::Body, namespace::Namespace};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::{paged::Paged, sync::LockGuard};

impl Namespace {
    /// Mounts the file system with the root `root` on `at`. If file systems are already mounted on `at`, the mount
    /// point is the root of the topmost one. First calls `list` with the mount point; `list` adds the mount to the
    /// mount table. If `list` fails, mounts nothing.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed, and the errors of `list`.
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

    /// Unmounts the file system with the root `root` from `at`, if it is mounted there and unused. The file system is
    /// unused if `root` has only `known` references besides those of its entries, the entries below it have no
    /// references besides those of the tree, and `is_bound` returns `false`. Returns a guard that prevents changes of
    /// the tree.
    ///
    /// The check and the unmount are atomic: in between, no path walk enters the file system or ascends in it, and its
    /// entries do not change.
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

    /// Returns whether the caller has the only reference to the detached file system with the root `root`. The guard
    /// `_kept` prevents changes of the tree.
    #[must_use]
    pub fn is_abandoned(&self, _kept: &LockGuard<'_, ()>, root: &Arc<Dentry>) -> bool {
        !is_used(root, 1)
    }
}

/// Returns whether `root` or an entry below it is in use: it has references besides those of the tree. `root` has
/// `known` further references that do not count as use.
///
/// The following are uses. An open file has a reference to its entry, even if the entry was removed. A removed entry
/// has a reference to its former directory. The root of a file system that is mounted on an entry has a reference to
/// the directory that contains the entry.
///
/// The check proceeds from the top down. A path walk that runs at the same time cannot escape the check: the walk also
/// descends, so the check finds its reference further below. If memory runs out, returns `true`.
fn is_used(root: &Arc<Dentry>, known: usize) -> bool {
    let mut pending: Paged<Arc<Dentry>> = Paged::new();
    let (mut here, mut known) = (root.clone(), known);
    loop {
        // Count the reference `here`, which this function holds.
        let mut expected = known + 1;
        if let Body::Directory(entries) = &here.inode.body {
            let entries = entries.lock();
            expected += entries.len();
            for entry in entries.all() {
                if pending.try_push(entry.clone()).is_err() {
                    return true;
                }
            }
            // Compare the count under the lock of the entries, before a path walk that waits for this lock can move on
            // to an entry below.
            if Arc::strong_count(&here) != expected {
                return true;
            }
        } else if Arc::strong_count(&here) != expected {
            return true;
        }
        match pending.pop() {
            // The parent directory has one reference to the entry, which does not count as use.
            Some(next) => (here, known) = (next, 1),
            None => return false,
        }
    }
}
