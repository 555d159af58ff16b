//! Changes of the tree of names: one operation per file.
//!
//! All of them hold the namespace lock, so that what was checked stays true until it is done.
//! Directories are locked inside of it one at a time; look-ups take no other lock.

mod create;
mod link;
mod mount;
mod remove;
mod rename;

pub use remove::Removal;
pub use rename::{RenameMode, RenameSide};

use super::{
    attributes::Moment,
    dentry::Dentry,
    entries::Entries,
    inode::{Body, Inode},
    permission::{Permission, Subject},
};
use crate::{
    errno::Errno,
    sync::{Lock, LockGuard, Rank},
};
use alloc::sync::Arc;

/// The right to change names, which one thread has at a time.
pub struct Namespace(Lock<()>);

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Namespace {
    /// Nobody changes names.
    #[must_use]
    pub const fn new() -> Self {
        Self(Lock::new(Rank::FileSystem, ()))
    }

    /// Keeps all names as they are, as long as it lives.
    pub fn keep(&self) -> LockGuard<'_, ()> {
        self.0.lock()
    }
}

/// Who changes the tree, and when.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Whose rights count.
    pub subject: Subject,
    /// The moment that the nodes record.
    pub now: Moment,
}

/// The entries of a directory whose entries can change.
///
/// # Errors
/// `ENOTDIR`; `EPERM` for a directory of `/proc`.
fn changeable(directory: &Inode) -> Result<&Lock<Entries<Arc<Dentry>>>, Errno> {
    match &directory.body {
        Body::Directory(entries) => Ok(entries),
        Body::Proc(_) if directory.is_directory() => Err(Errno::EPERM),
        Body::Proc(_)
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
    /// Checks the right to change a directory's entries.
    fn may_change(&self, directory: &Inode) -> Result<(), Errno> {
        directory.check(self.subject, Permission::WRITE | Permission::EXECUTE)
    }

    /// Checks the right to remove `victim`: in a sticky directory only its owner, the directory's
    /// owner and root have it.
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
