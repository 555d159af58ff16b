//! System calls that close and duplicate descriptors.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::fs::socket::Registry;

/// `CLOSE_RANGE_UNSHARE` of `linux/close_range.h`.
const CLOSE_RANGE_UNSHARE: u32 = 2;

/// `CLOSE_RANGE_CLOEXEC` of `linux/close_range.h`.
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_close,
        "close",
        &[Kind::Fd],
        handler!(close, sockets),
    ),
    real(
        raw::__NR_close_range,
        "close_range",
        &[Kind::Unsigned, Kind::Unsigned, Kind::Hex],
        handler!(close_range, sockets),
    ),
    real(raw::__NR_dup, "dup", &[Kind::Fd], handler!(dup)),
    real(
        raw::__NR_dup2,
        "dup2",
        &[Kind::Fd, Kind::Fd],
        handler!(dup2),
    ),
    real(
        raw::__NR_dup3,
        "dup3",
        &[Kind::Fd, Kind::Fd, Kind::Flags(super::open::OPEN_FLAGS)],
        handler!(dup3),
    ),
];

fn close(current: &Current<'_>, sockets: &Registry, arguments: &Arguments) -> CallResult {
    let process = current.process().id;
    current.files().close(process, int(arguments[0]))?;
    current.vfs().mounts.reap(sockets);
    Ok(0)
}

fn close_range(current: &Current<'_>, sockets: &Registry, arguments: &Arguments) -> CallResult {
    let &[first, last, flags, ..] = arguments;
    let (first, last, flags) = (first as u32, last as u32, flags as u32);
    if first > last || flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & CLOSE_RANGE_UNSHARE != 0 {
        let own = current.files().duplicate(current.vfs())?;
        drop(current.process().replace_files(Arc::new(own)));
    }
    let files = current.files();
    if flags & CLOSE_RANGE_CLOEXEC != 0 {
        files.mark_range(first, last);
    } else {
        files.close_range(current.process().id, first, last);
        current.vfs().mounts.reap(sockets);
    }
    Ok(0)
}

fn dup(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = current.files().get(int(arguments[0]))?;
    current.caller().add_descriptor(open, 0)
}

/// Makes `new` refer to the file of `old`. Closes the previous file of `new`.
fn duplicate_to(current: &Current<'_>, old: i32, new: i32, close_on_exec: bool) -> CallResult {
    let files = current.files();
    let open = files.get(old)?;
    let before = files.put(
        new,
        current.caller().descriptor_limit(),
        open,
        close_on_exec,
    )?;
    if let Some(before) = before {
        files.release_locks(current.process().id, &before);
    }
    Ok(new as u64)
}

fn dup2(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[old, new, ..] = arguments;
    let (old, new) = (int(old), int(new));
    if old == new {
        return current.files().get(old).map(|_| old as u64);
    }
    duplicate_to(current, old, new, false)
}

fn dup3(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[old, new, flags, ..] = arguments;
    let (old, new, flags) = (int(old), int(new), flags as u32);
    if flags & !raw::O_CLOEXEC != 0 || old == new {
        return Err(Errno::EINVAL);
    }
    duplicate_to(current, old, new, flags != 0)
}
