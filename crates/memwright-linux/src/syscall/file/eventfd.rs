//! The `eventfd` and `eventfd2` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, real},
};
use alloc::boxed::Box;
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::fs::eventfd::EventCounter;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_eventfd,
        "eventfd",
        &[Kind::Unsigned],
        handler!(eventfd),
    ),
    real(
        raw::__NR_eventfd2,
        "eventfd2",
        &[Kind::Unsigned, Kind::Hex],
        handler!(eventfd2),
    ),
];

fn make(current: &Current<'_>, count: u64, flags: u32) -> CallResult {
    if flags & !(raw::EFD_SEMAPHORE | raw::EFD_CLOEXEC | raw::EFD_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    current.check_heap()?;
    current.caller().check_open_files()?;
    let counter = EventCounter::new(u64::from(count as u32), flags & raw::EFD_SEMAPHORE != 0);
    let vfs = current.vfs();
    let status = raw::O_RDWR | flags & raw::O_NONBLOCK;
    let open = vfs
        .mounts
        .open_anonymous(vfs, "[eventfd]", status, Box::new(counter));
    current.caller().add_descriptor(open, flags)
}

fn eventfd(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    make(current, arguments[0], 0)
}

fn eventfd2(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    make(current, arguments[0], arguments[1] as u32)
}
