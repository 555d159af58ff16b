//! A file system covers a directory, and uncovers it again.

use super::Namespace;
use crate::{
    errno::Errno,
    fs::{dentry::Dentry, inode::Body},
    paged::Paged,
    sync::LockGuard,
};
use alloc::sync::Arc;

impl Namespace {
    /// Covers `at`, or what covers it already, by the file system of this root, if `list` takes it.
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

    /// Uncovers `at`, if the file system of `root` covers it and nobody uses anything in that: beside the names in it, `root`
    /// has `known` references, and `is_bound` says that nothing else leads there. All names stay as they are as long as what
    /// is returned lives.
    ///
    /// Look and deed are one: nobody enters the file system meanwhile, changes its names, or climbs in it.
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

    /// Whether nobody but who asks uses a file system that has no place any more, while all names stay as they are.
    #[must_use]
    pub fn is_abandoned(&self, _kept: &LockGuard<'_, ()>, root: &Arc<Dentry>) -> bool {
        !is_used(root, 1)
    }
}

/// Whether anybody but the tree has one of the names from `root` down, which itself has `known` references, or another
/// file system covers one: its root knows the directory above it. An open file has its name, even a removed one, and a
/// removed name has the directory that it was in.
///
/// From the top to the bottom: who goes down meanwhile is found further below. Without memory to look everywhere it is
/// taken for used.
fn is_used(root: &Arc<Dentry>, known: usize) -> bool {
    let mut pending: Paged<Arc<Dentry>> = Paged::new();
    let (mut here, mut known) = (root.clone(), known);
    loop {
        // The reference that is held while it is looked at.
        let mut expected = known + 1;
        if let Body::Directory(entries) = &here.inode.body {
            let entries = entries.lock();
            expected += entries.len();
            for entry in entries.all() {
                if pending.try_push(entry.clone()).is_err() {
                    return true;
                }
            }
            // Counted before anybody who waits for the entries goes on to one of them.
            if Arc::strong_count(&here) != expected {
                return true;
            }
        } else if Arc::strong_count(&here) != expected {
            return true;
        }
        match pending.pop() {
            // Its directory's.
            Some(next) => (here, known) = (next, 1),
            None => return false,
        }
    }
}
