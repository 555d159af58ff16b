//! Reads all entries of a directory from the lower tree.

use crate::fs::{
    dentry::Dentry,
    inode::Body,
    lower::{answer_room, make},
};
use alloc::sync::Arc;
use memwright_linux_abi::{
    channel::lower::{LowerEntry, LowerRequest},
    errno::Errno,
};
use memwright_linux_base::sync::PausePoints;

/// Maximum length in bytes of one reply to a request for the entries of a directory.
const ROOM: usize = 32 << 10;
/// Number of entries that are added between two scheduling points.
const ENTRIES: u32 = 16;

/// Adds all entries that this directory has in the lower tree, so that the directory is no longer partial. Does nothing
/// for an inode that is not a partial directory.
///
/// # Errors
/// `ENOMEM`, and the errors of the host's file system. The entries that were added before the error remain.
pub fn complete(directory: &Arc<Dentry>) -> Result<(), Errno> {
    let inode = &directory.inode;
    let (Some(lower), Body::Directory(entries)) = (&inode.file_system.lower, &inode.body) else {
        return Ok(());
    };
    if !entries.lock().is_partial() {
        return Ok(());
    }
    let path = lower.path(inode.number, b"")?;
    let mut room = answer_room(ROOM)?;
    let mut points = PausePoints::every(ENTRIES);
    let mut from = 0;
    loop {
        let request = LowerRequest::List { path: &path, from };
        let mut rest = lower.ask(request, &mut room)?;
        if rest.is_empty() {
            break;
        }
        while !rest.is_empty() {
            points.round();
            let (found, after) = LowerEntry::decode(rest).ok_or(Errno::EIO)?;
            (rest, from) = (after, from + 1);
            if entries.lock().get(found.name).is_some() {
                continue;
            }
            let made = make(
                lower,
                inode,
                lower.path(inode.number, found.name)?,
                found.node,
            )?;
            let entry = Arc::new(Dentry::new(directory, found.name, made));
            let mut held = entries.lock();
            if !held.is_partial() {
                // Another thread has completed the directory.
                drop(held);
                lower.forget(entry.inode.number);
                return Ok(());
            }
            if held.get(found.name).is_some() {
                drop(held);
                lower.forget(entry.inode.number);
                continue;
            }
            let directories = u32::from(entry.inode.is_directory());
            held.insert(found.name, entry);
            drop(held);
            inode.change(|metadata| metadata.links += directories);
        }
    }
    entries.lock().set_complete();
    lower.forget(inode.number);
    Ok(())
}

/// Completes the directory `parent`, from which the entry `name` is to be removed. If that entry is a directory,
/// completes it too, because it can only be removed if it is empty.
///
/// # Errors
/// The errors of [`complete`].
pub fn complete_for_removal(parent: &Arc<Dentry>, name: &[u8]) -> Result<(), Errno> {
    complete(parent)?;
    let Body::Directory(entries) = &parent.inode.body else {
        return Ok(());
    };
    if parent.inode.file_system.lower.is_none() {
        return Ok(());
    }
    let entry = entries.lock().get(name).cloned();
    entry.as_ref().map_or(Ok(()), complete)
}
