//! What `/proc` and `/sys` show.

use super::{dentry::Dentry, dirents::DirectoryEntry, inode::Link, kind::Kind, open_file::File};
use crate::{context::Context, errno::Errno};
use alloc::{boxed::Box, sync::Arc};

/// A node of `/proc` or `/sys`.
pub enum ProcNode {
    Root,
}

impl ProcNode {
    pub fn root() -> Self {
        Self::Root
    }
    pub fn sys_root() -> Self {
        Self::Root
    }
    pub fn links(&self) -> u32 {
        2
    }
    pub fn kind(&self) -> Kind {
        Kind::Directory
    }
    pub fn size(&self, _: Option<&Context<'_>>) -> u64 {
        0
    }
    pub fn link(&self, _: &Context<'_>) -> Result<Link, Errno> {
        Err(Errno::EINVAL)
    }
    pub fn lookup(&self, _: &Context<'_>, _: &Arc<Dentry>, _: &[u8]) -> Result<Arc<Dentry>, Errno> {
        Err(Errno::ENOENT)
    }
    pub fn entries(
        &self,
        _: &Context<'_>,
        _: &mut u64,
        _: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        Ok(())
    }
    pub fn open(&self, _: &Context<'_>) -> Result<Box<dyn File>, Errno> {
        Err(Errno::EACCES)
    }
}
