//! The `eventfd` and `eventfd2` system calls.

use crate::{
    context::{Arguments, CallResult, Context},
    errno::Errno,
    fs::eventfd::EventCounter,
    syscall::call::{Kind, SystemCall, real},
};
use alloc::boxed::Box;
use linux_raw_sys::general as raw;

/// The table entries of this group.
pub const CALLS: &[SystemCall] = &[
    real(raw::__NR_eventfd, "eventfd", &[Kind::Unsigned], eventfd),
    real(
        raw::__NR_eventfd2,
        "eventfd2",
        &[Kind::Unsigned, Kind::Hex],
        eventfd2,
    ),
];

fn make(context: &Context<'_>, count: u64, flags: u32) -> CallResult {
    if flags & !(raw::EFD_SEMAPHORE | raw::EFD_CLOEXEC | raw::EFD_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    context.check_heap()?;
    context.caller().check_open_files()?;
    let counter = EventCounter::new(u64::from(count as u32), flags & raw::EFD_SEMAPHORE != 0);
    let kernel = context.kernel;
    let status = raw::O_RDWR | flags & raw::O_NONBLOCK;
    let open = kernel
        .vfs
        .mounts
        .open_anonymous(kernel.vfs, "[eventfd]", status, Box::new(counter));
    context.caller().add_descriptor(open, flags)
}

fn eventfd(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    make(context, arguments[0], 0)
}

fn eventfd2(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    make(context, arguments[0], arguments[1] as u32)
}
