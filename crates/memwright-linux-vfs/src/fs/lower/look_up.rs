//! Looks up a name in the lower tree.

use crate::fs::{
    dentry::Dentry,
    inode::Body,
    lower::{answer_room, make},
};
use alloc::sync::Arc;
use memwright_linux_abi::{
    channel::lower::{LowerNode, LowerRequest},
    errno::Errno,
};

/// Looks up the entry `name` of a partial directory in the lower tree. Adds the entry to the directory and returns it.
///
/// # Errors
/// `ENOENT` if there is no such entry, `ENOMEM`, and the errors of the host's file system.
pub fn look_up(directory: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>, Errno> {
    let inode = &directory.inode;
    let lower = inode.file_system.lower.as_ref().ok_or(Errno::ENOENT)?;
    let Body::Directory(entries) = &inode.body else {
        return Err(Errno::ENOENT);
    };
    let path = lower.path(inode.number, name)?;
    let mut room = answer_room(1 + LowerNode::LONGEST)?;
    let answer = lower.ask(LowerRequest::LookUp { path: &path }, &mut room)?;
    let (node, _) = LowerNode::decode(answer).ok_or(Errno::EIO)?;
    let made = make(lower, inode, path, node)?;
    let entry = Arc::new(Dentry::new(directory, name, made));
    let found = {
        let mut entries = entries.lock();
        let found = entries.get(name).cloned();
        match found {
            // Another thread added the entry in the meantime, or a program created a file with this name.
            Some(found) => Some(found),
            // Another thread has completed the directory in the meantime, and the name has been removed since then.
            None if !entries.is_partial() => None,
            None => {
                entries.insert(name, entry.clone());
                let directories = u32::from(entry.inode.is_directory());
                drop(entries);
                inode.change(|metadata| metadata.links += directories);
                return Ok(entry);
            }
        }
    };
    lower.forget(entry.inode.number);
    found.ok_or(Errno::ENOENT)
}
