//! System calls that create pipes.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, real},
};
use alloc::{boxed::Box, sync::Arc};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_vfs::fs::{
    OpenFile,
    dentry::Dentry,
    inode::{Body, Inode},
    mounts::pipe_name,
    pipe::{PIPE_FLAGS, Pipe, PipeEnd, Room},
};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_pipe,
        "pipe",
        &[Kind::Out(8)],
        handler!(pipe, memory),
    ),
    real(
        raw::__NR_pipe2,
        "pipe2",
        &[Kind::Out(8), Kind::Flags(super::open::OPEN_FLAGS)],
        handler!(pipe2, memory),
    ),
];

fn make(current: &Current<'_>, memory: &Arc<Memory>, address: u64, flags: u32) -> CallResult {
    // `O_DIRECT` (packet mode) is not supported, so it is rejected like an unknown flag.
    if flags & !PIPE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    current.check_heap()?;
    current.caller().check_open_files()?;
    let vfs = current.vfs();
    let mut room = Some(Room::new(current)?);
    let pipe = Arc::new(Pipe::new(memory));
    let body = Body::Fifo(pipe.clone());
    let now = vfs.now();
    let inode = Inode::new(
        vfs.mounts.pipes(),
        body,
        0o600,
        current.caller().subject().owner(),
        now,
    );
    let name = pipe_name(inode.number);
    let entry = Arc::new(Dentry::detached(name.as_bytes(), Arc::new(inode)));
    let mut end = |reads: bool| {
        let access = if reads { raw::O_RDONLY } else { raw::O_WRONLY };
        let side = Box::new(PipeEnd::new(vfs, &pipe, room.take(), (reads, !reads)));
        let status = access | flags & raw::O_NONBLOCK;
        Arc::new(OpenFile::new(Some(vfs), entry.clone(), status, side))
    };
    let (reader, writer) = (end(true), end(false));
    let first = current.caller().add_descriptor(reader, flags)?;
    let files = current.files();
    let close = |number: u64| files.close(current.process().id, number as i32);
    let second = match current.caller().add_descriptor(writer, flags) {
        Ok(second) => second,
        Err(error) => {
            close(first)?;
            return Err(error);
        }
    };
    if let Err(error) = current
        .user
        .write_value(address, &[first as i32, second as i32])
    {
        close(first)?;
        close(second)?;
        return Err(error);
    }
    Ok(0)
}

fn pipe(current: &Current<'_>, memory: &Arc<Memory>, arguments: &Arguments) -> CallResult {
    make(current, memory, arguments[0], 0)
}

fn pipe2(current: &Current<'_>, memory: &Arc<Memory>, arguments: &Arguments) -> CallResult {
    make(current, memory, arguments[0], arguments[1] as u32)
}
