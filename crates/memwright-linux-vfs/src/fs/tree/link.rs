//! Creates directory entries for existing inodes (hard links).

use crate::fs::{
    dentry::Dentry,
    inode::Inode,
    name::NAME_MAX,
    namespace::Namespace,
    tree::{Change, changeable},
};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;

impl Namespace {
    /// Creates the entry `name` in `parent` for an existing inode. With `nameless`, accepts an inode without a link,
    /// which `O_TMPFILE` created.
    ///
    /// # Errors
    /// `EPERM` for a directory, `EXDEV` across file systems, `ENOENT` if the inode has no link and `nameless` is not
    /// set, and the errors of [`Namespace::create`].
    pub fn link(
        &self,
        change: &Change,
        inode: &Arc<Inode>,
        nameless: bool,
        parent: &Arc<Dentry>,
        name: &[u8],
    ) -> Result<Arc<Dentry>, Errno> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let entries = changeable(&parent.inode)?;
        if !Arc::ptr_eq(&inode.file_system, &parent.inode.file_system) {
            return Err(Errno::EXDEV);
        }
        if inode.is_directory() {
            return Err(Errno::EPERM);
        }
        let entry = Arc::new(Dentry::new(parent, name, inode.clone()));
        let guard = self.0.lock();
        change.may_change(&parent.inode)?;
        if inode.metadata().links == 0 && !nameless {
            return Err(Errno::ENOENT);
        }
        {
            let mut entries = entries.lock();
            if entries.is_dead() {
                return Err(Errno::ENOENT);
            }
            if entries.get(name).is_some() {
                return Err(Errno::EEXIST);
            }
            entries.insert(name, entry.clone());
        }
        inode.change(|metadata| {
            metadata.links += 1;
            metadata.changed = change.now;
        });
        parent.inode.touch_modified(change.now);
        drop(guard);
        Ok(entry)
    }
}
