//! Creates directory entries for new inodes.

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
    /// Creates the entry `name` for `inode` in `parent`.
    ///
    /// # Errors
    /// `EEXIST` if the name exists, `ENOSPC` if the file system has reached its limit on inodes, `ENOENT` if the
    /// directory was removed, `EINVAL` for a symbolic link on hugetlbfs, `ENAMETOOLONG`, `ENOTDIR`, `EACCES`, `EPERM`.
    pub fn create(
        &self,
        change: &Change,
        parent: &Arc<Dentry>,
        name: &[u8],
        inode: Inode,
    ) -> Result<Arc<Dentry>, Errno> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let entries = changeable(&parent.inode)?;
        if inode.file_system.is_full() {
            return Err(Errno::ENOSPC);
        }
        let directory = inode.is_directory();
        inode.inherit(&parent.inode, &change.subject);
        let entry = Arc::new(Dentry::new(parent, name, Arc::new(inode)));
        let guard = self.0.lock();
        change.may_change(&parent.inode)?;
        {
            let mut entries = entries.lock();
            if entries.is_dead() {
                return Err(Errno::ENOENT);
            }
            if entries.get(name).is_some() {
                return Err(Errno::EEXIST);
            }
            if !entry.inode.has_place_for_contents() {
                return Err(Errno::EINVAL);
            }
            entries.insert(name, entry.clone());
        }
        parent.inode.change(|metadata| {
            metadata.links += u32::from(directory);
            metadata.modified = change.now;
            metadata.changed = change.now;
        });
        drop(guard);
        Ok(entry)
    }
}
