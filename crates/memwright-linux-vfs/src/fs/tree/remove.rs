//! Removes directory entries. An inode is freed when it has neither links nor users.

use crate::fs::{
    dentry::Dentry,
    inode::{Body, Inode},
    lower,
    namespace::Namespace,
    tree::{Change, changeable},
};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;

/// The call that removes an entry. Each of the two calls refuses the entries that the other one removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// `rmdir`, which removes only directories.
    Directory,
    /// `unlink`, which removes everything except directories.
    Other,
}

/// Checks that the call `removal` can remove `entry`. If `entry` is a directory and can be removed, marks the directory
/// as removed, so that no entry can be created in it any more.
///
/// # Errors
/// `EBUSY` for a mount point, `ENOTDIR`, `EISDIR`, `ENOTEMPTY`.
pub(super) fn check_removal(entry: &Dentry, removal: Removal) -> Result<(), Errno> {
    if entry.is_covered() {
        return Err(Errno::EBUSY);
    }
    match (&entry.inode.body, removal) {
        (Body::Directory(entries), Removal::Directory) => {
            let mut entries = entries.lock();
            if !entries.is_empty() {
                return Err(Errno::ENOTEMPTY);
            }
            entries.kill();
            Ok(())
        }
        (Body::Directory(_), Removal::Other) => Err(Errno::EISDIR),
        (_, Removal::Directory) => Err(Errno::ENOTDIR),
        (_, Removal::Other) => Ok(()),
    }
}

/// Marks `entry` as removed, and updates the link counts and times. The caller has removed it from the entries of
/// `parent`.
pub(super) fn forget(change: &Change, parent: &Inode, entry: &Dentry) {
    entry.mark_removed();
    let directory = entry.inode.is_directory();
    entry.inode.change(|metadata| {
        metadata.links = if directory {
            0
        } else {
            metadata.links.saturating_sub(1)
        };
        metadata.changed = change.now;
    });
    parent.change(|metadata| {
        metadata.links -= u32::from(directory);
        metadata.modified = change.now;
        metadata.changed = change.now;
    });
}

impl Namespace {
    /// Removes the entry `name` from `parent`.
    ///
    /// # Errors
    /// The errors of `unlink(2)` and `rmdir(2)`: `ENOENT`, `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EBUSY` for a mount point,
    /// `EACCES`, `EPERM`.
    pub fn remove(
        &self,
        change: &Change,
        parent: &Arc<Dentry>,
        name: &[u8],
        removal: Removal,
    ) -> Result<(), Errno> {
        let entries = changeable(&parent.inode)?;
        lower::complete_for_removal(parent, name)?;
        let guard = self.0.lock();
        let entry = entries.lock().get(name).cloned().ok_or(Errno::ENOENT)?;
        change.may_remove(&parent.inode, &entry.inode)?;
        check_removal(&entry, removal)?;
        let held = entries.lock().remove(name);
        forget(change, &parent.inode, &entry);
        drop(guard);
        // Dropping the entry can free the inode, so it must happen after the lock is released.
        drop((held, entry));
        Ok(())
    }
}
