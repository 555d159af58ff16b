//! The file operations of directories.

use crate::fs::{
    caller::Caller,
    dirents::DirectoryEntry,
    inode::Body,
    kind::Kind,
    lower,
    open_file::{File, OpenFile},
    seek::{Whence, sought},
};
use alloc::vec::Vec;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::PausePoints;

/// Number of entries that are passed to `emit` between two scheduling points.
const ENTRIES: u32 = 64;

/// The file operations of an open directory.
pub struct DirectoryFile;

impl File for DirectoryFile {
    fn read(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        _position: &mut u64,
        _sink: &mut crate::fs::transfer::Sink<'_>,
    ) -> Result<usize, Errno> {
        Err(Errno::EISDIR)
    }

    fn seek(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        position: u64,
        offset: i64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        sought(position, offset, whence, None)
    }

    fn entries(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        position: &mut u64,
        emit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let here = &open.entry;
        for (cookie, name) in [(0, &b"."[..]), (1, b"..")] {
            if *position == cookie {
                let inode = if cookie == 0 {
                    here.inode.number
                } else {
                    here.parent().inode.number
                };
                let entry = DirectoryEntry {
                    inode,
                    next: cookie + 1,
                    kind: Kind::Directory,
                    name,
                };
                if !emit(entry) {
                    return Ok(());
                }
                *position = cookie + 1;
            }
        }
        match &here.inode.body {
            Body::Directory(entries) => {
                lower::complete(here)?;
                if entries.lock().is_dead() {
                    return Err(Errno::ENOENT);
                }
                let mut points = PausePoints::every(ENTRIES);
                loop {
                    points.round();
                    // Release the lock of the entries after each entry, because `emit` can sleep.
                    let next = entries
                        .lock()
                        .next_from(*position)
                        .map(|(cookie, name, entry)| (cookie, Vec::from(name), entry.clone()));
                    let Some((cookie, name, entry)) = next else {
                        return Ok(());
                    };
                    let inode = &entry.inode;
                    let taken = emit(DirectoryEntry {
                        inode: inode.number,
                        next: cookie + 1,
                        kind: inode.kind(),
                        name: &name,
                    });
                    if !taken {
                        return Ok(());
                    }
                    *position = cookie + 1;
                }
            }
            Body::Generated(node) => node.entries(caller, position, emit),
            Body::Regular(_)
            | Body::Symlink(_)
            | Body::Character(_)
            | Body::Block(_)
            | Body::Fifo(_)
            | Body::Socket
            | Body::Console(_)
            | Body::Anonymous => Err(Errno::ENOTDIR),
        }
    }
}
