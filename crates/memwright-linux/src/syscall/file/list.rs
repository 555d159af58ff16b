//! System calls that list directories.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::fs::dirents::Layout;
use memwright_table::TryPush;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_getdents,
        "getdents",
        &[Kind::Fd, Kind::OutBuffer(2), Kind::Unsigned],
        handler!(getdents),
    ),
    real(
        raw::__NR_getdents64,
        "getdents64",
        &[Kind::Fd, Kind::OutBuffer(2), Kind::Unsigned],
        handler!(getdents64),
    ),
];

/// Maximum number of bytes that one call returns, even if the buffer is larger. C libraries use buffers of this size.
const GATHER_MAX: usize = 32 * 1024;

fn list(current: &Current<'_>, arguments: &Arguments, layout: Layout) -> CallResult {
    let &[number, address, size, ..] = arguments;
    current.check_heap()?;
    let open = current.files().get_usable(int(number))?;
    let size = size as u32 as usize;
    memwright_linux_vfs::user::check_range(address, size)?;
    let before = open.position();
    let mut records = Vec::new();
    let room = records.try_fill(size.min(GATHER_MAX), 0);
    room.map_err(|_| Errno::ENOMEM)?;
    let mut length = 0;
    let mut too_small = false;
    open.entries(
        current,
        &mut |entry| match entry.encode(layout, &mut records[length..]) {
            Some(count) => {
                length += count;
                true
            }
            None => {
                too_small = length == 0;
                false
            }
        },
    )?;
    if too_small {
        return Err(Errno::EINVAL);
    }
    if let Err(error) = current.user.write_bytes(address, &records[..length]) {
        // The caller did not get the entries: restore the position, so that the next call returns these entries again.
        let start = memwright_linux_vfs::fs::seek::Whence::Start;
        open.seek(current, before as i64, start)?;
        return Err(error);
    }
    Ok(length as u64)
}

fn getdents(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    list(current, arguments, Layout::Old)
}

fn getdents64(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    list(current, arguments, Layout::Wide)
}
