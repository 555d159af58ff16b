//! Creates the inode and the open file of a socket of any protocol.

use crate::fs::{
    caller::Caller,
    dentry::Dentry,
    inode::{Body, Inode},
    open_file::{File, OpenFile},
};
use alloc::{boxed::Box, sync::Arc};
use linux_raw_sys::general as raw;
use memwright_linux_base::short::Short;

/// Creates an open file for a socket. `file` creates the file operations from the inode number. `flags` can contain
/// `O_NONBLOCK`.
#[must_use]
pub fn open_socket<F: File + 'static>(
    caller: &dyn Caller,
    flags: u32,
    file: impl FnOnce(u64) -> F,
) -> Arc<OpenFile> {
    let vfs = caller.vfs();
    let file_system = vfs.mounts.socket_files();
    let inode = Inode::new(
        file_system,
        Body::Socket,
        0o777,
        caller.subject().owner(),
        vfs.now(),
    );
    let file = Box::new(file(inode.number));
    let name = Short::of(format_args!("socket:[{}]", inode.number));
    let entry = Arc::new(Dentry::detached(name.as_bytes(), Arc::new(inode)));
    let status = raw::O_RDWR | flags & raw::O_NONBLOCK;
    Arc::new(OpenFile::new(Some(vfs), entry, status, file))
}
