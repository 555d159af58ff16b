//! Removing entries. An inode is freed with its last link and its last user.

use super::{Change, Namespace, changeable};
use crate::{
    errno::Errno,
    fs::{
        dentry::Dentry,
        inode::{Body, Inode},
    },
};
use alloc::sync::Arc;

/// The call that removes an entry. Each refuses what the other removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// `rmdir`: directories only.
    Directory,
    /// `unlink`: everything else.
    Other,
}

/// Checks that the call may remove an entry. A directory that passes is marked as removed, so that no entry can be
/// created in it.
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

/// Records that `entry`, which was removed from the map, has lost its name in `parent`.
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
    /// Removes `name` from `parent`.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EBUSY` for a mount point, `EACCES`, `EPERM`.
    pub fn remove(
        &self,
        change: &Change,
        parent: &Arc<Dentry>,
        name: &[u8],
        removal: Removal,
    ) -> Result<(), Errno> {
        let entries = changeable(&parent.inode)?;
        let guard = self.0.lock();
        let entry = entries.lock().get(name).cloned().ok_or(Errno::ENOENT)?;
        change.may_remove(&parent.inode, &entry.inode)?;
        check_removal(&entry, removal)?;
        let held = entries.lock().remove(name);
        forget(change, &parent.inode, &entry);
        drop(guard);
        // The inode may be freed here, without the lock.
        drop((held, entry));
        Ok(())
    }
}
