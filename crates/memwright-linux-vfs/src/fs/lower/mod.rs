//! The operations on a file system with a lower tree. Each submodule contains one operation.
//!
//! A directory is partial while the lower tree can have entries that the directory does not have in memory. Before a
//! name is removed from a directory, the directory is completed: all its entries are read from the lower tree.
//! Otherwise the next lookup would find the removed name in the lower tree again.

mod complete;
mod copy_up;
mod look_up;

pub use complete::{complete, complete_for_removal};
pub use copy_up::copy_up;
pub use look_up::look_up;

use crate::fs::{
    body::regular::Regular,
    entries::Entries,
    inode::{Body, Inode},
    lower_tree::Lower,
    permission::Owner,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use memwright_linux_abi::{channel::lower::LowerNode, errno::Errno};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::TryPush;

/// Creates an inode for the file, directory or symbolic link `node` at `path` in the lower tree. The inode is in the
/// file system of `directory`.
fn make(
    lower: &Lower,
    directory: &Inode,
    path: Vec<u8>,
    node: LowerNode<'_>,
) -> Result<Arc<Inode>, Errno> {
    let home = &directory.file_system;
    if home.is_full() {
        return Err(Errno::ENOMEM);
    }
    let (body, permissions) = match node {
        LowerNode::Folder { permissions } => {
            let entries = Lock::new(Rank::File, Entries::partial());
            (Body::Directory(entries), permissions)
        }
        LowerNode::Link { target } => {
            let mut copy = Vec::new();
            copy.try_push_all(target)?;
            (Body::Symlink(copy.into_boxed_slice()), 0o777)
        }
        LowerNode::File { permissions, size } => {
            let regular = Regular::in_lower(&lower.memory, size)?;
            (Body::Regular(regular), permissions)
        }
    };
    let inode = Inode::new(home, body, u32::from(permissions), Owner::ROOT, lower.time);
    match node {
        LowerNode::Folder { .. } | LowerNode::File { .. } => {
            lower.note(inode.number, path.into_boxed_slice())?;
        }
        LowerNode::Link { .. } => {}
    }
    Ok(Arc::new(inode))
}

/// Allocates a buffer of `length` bytes for the reply to a request.
fn answer_room(length: usize) -> Result<Box<[u8]>, Errno> {
    let mut room = Vec::new();
    room.try_fill(length, 0)?;
    Ok(room.into_boxed_slice())
}
