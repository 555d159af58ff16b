//! Nodes whose contents are generated on access.

use crate::fs::{
    caller::Caller, dentry::Dentry, dirents::DirectoryEntry, inode::Link, kind::Kind,
    open_file::File,
};
use alloc::{boxed::Box, sync::Arc};
use core::any::Any;
use memwright_linux_abi::errno::Errno;

/// Inode numbers of the nodes of `/proc/sys`, whose permissions are checked by `permitted_setting`.
pub const SETTING_NUMBERS: core::ops::Range<u64> = 0x200..0x700;

/// A function that is called with each entry of a directory. It returns `false` if an entry does not fit.
pub type Emit<'a> = &'a mut dyn FnMut(DirectoryEntry<'_>) -> bool;

/// A node of a file system that is not stored, such as `/proc`. Its entries and contents are generated from the state
/// of the kernel when they are accessed.
pub trait GeneratedNode: Any + Send + Sync {
    /// Returns the file type.
    fn kind(&self) -> Kind;

    /// Returns the number of links.
    fn links(&self) -> u32;

    /// Returns the size in bytes that `stat` reports.
    fn size(&self, caller: Option<&dyn Caller>) -> u64;

    /// Returns whether the caller is allowed to search the directory even if its permission bits forbid it.
    fn admits(&self, caller: &dyn Caller) -> bool;

    /// Returns the target of a link.
    ///
    /// # Errors
    /// `EINVAL` if the node is not a symbolic link, and the errors of the file system.
    fn link(&self, caller: &dyn Caller) -> Result<Link, Errno>;

    /// Creates the file operations of the node.
    ///
    /// # Errors
    /// `ELOOP` if the node is a link, and the errors of the file system.
    fn open(&self, caller: &dyn Caller) -> Result<Box<dyn File>, Errno>;

    /// Looks up `name` in this directory, and creates its directory entry.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`.
    fn lookup(
        &self,
        caller: &dyn Caller,
        directory: &Arc<Dentry>,
        name: &[u8],
    ) -> Result<Arc<Dentry>, Errno>;

    /// Calls `emit` with each entry of this directory, starting at `position`, until `emit` returns `false`. Advances
    /// `position`.
    ///
    /// # Errors
    /// `ENOTDIR` if the node is not a directory, and the errors of the file system.
    fn entries(&self, caller: &dyn Caller, position: &mut u64, emit: Emit<'_>)
    -> Result<(), Errno>;
}
