//! Changes of the directory tree. Each submodule contains one kind of change.
//!
//! Every change holds the lock of `Namespace`, so that the conditions that it has checked stay true until it is done.
//! While it holds that lock, it locks one directory at a time. A lookup takes only the lock of the directory.

mod create;
mod link;
mod mount;
mod remove;
mod rename;

pub use remove::Removal;
pub use rename::{RenameMode, RenameSide};

use crate::fs::{
    attributes::Moment,
    caller::Caller,
    dentry::Dentry,
    entries::Entries,
    inode::{Body, Inode},
    permission::{Permission, Subject},
};
use alloc::sync::Arc;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::Lock;

/// The subject on whose behalf the tree is changed, and the time of the change.
#[derive(Clone, Debug)]
pub struct Change {
    /// The file system ids of the caller, for permission checks.
    pub subject: Subject,
    /// The time that becomes the new timestamp of the changed inodes.
    pub now: Moment,
}

/// Returns the entries of a directory. Fails for a directory whose entries cannot be changed.
///
/// # Errors
/// `ENOTDIR` if the inode is not a directory, `EPERM` for a directory of `/proc` or `/sys`.
fn changeable(directory: &Inode) -> Result<&Lock<Entries<Arc<Dentry>>>, Errno> {
    match &directory.body {
        Body::Directory(entries) => Ok(entries),
        Body::Generated(_) if directory.is_directory() => Err(Errno::EPERM),
        Body::Generated(_)
        | Body::Regular(_)
        | Body::Symlink(_)
        | Body::Character(_)
        | Body::Block(_)
        | Body::Fifo(_)
        | Body::Socket
        | Body::Console(_)
        | Body::Anonymous => Err(Errno::ENOTDIR),
    }
}

impl Change {
    /// Checks that the subject is allowed to add entries to `directory` and to remove entries from it.
    fn may_change(&self, directory: &Inode) -> Result<(), Errno> {
        directory.check(&self.subject, Permission::WRITE | Permission::EXECUTE)
    }

    /// Checks that the subject is allowed to remove `victim` from `directory`. If the directory has the sticky bit,
    /// only the owner of `victim`, the owner of the directory and root are allowed to remove `victim`.
    fn may_remove(&self, directory: &Inode, victim: &Inode) -> Result<(), Errno> {
        self.may_change(directory)?;
        let metadata = directory.metadata();
        let sticky = metadata.permissions & 0o1000 != 0;
        let user = self.subject.user;
        if sticky
            && user != 0
            && user != metadata.owner.user
            && user != victim.metadata().owner.user
        {
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

impl dyn Caller + '_ {
    /// Returns the caller's file system ids and the current time, for a change of the tree.
    #[must_use]
    pub fn change(&self) -> Change {
        Change {
            subject: self.subject(),
            now: self.vfs().now(),
        }
    }
}
