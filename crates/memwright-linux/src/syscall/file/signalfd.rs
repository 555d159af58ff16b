//! The `signalfd` and `signalfd4` system calls.

use crate::{
    context::{Arguments, CallResult, Context},
    errno::Errno,
    signal::SignalSet,
    signalfd::SignalFile,
    syscall::call::{Kind, SystemCall, int, real},
};
use alloc::boxed::Box;
use linux_raw_sys::general as raw;

/// The table entries of this group.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_signalfd,
        "signalfd",
        &[Kind::Int, Kind::In(8), Kind::Unsigned],
        signalfd,
    ),
    real(
        raw::__NR_signalfd4,
        "signalfd4",
        &[Kind::Int, Kind::In(8), Kind::Unsigned, Kind::Hex],
        signalfd4,
    ),
];

/// `SFD_CLOEXEC` and `SFD_NONBLOCK` of `linux/signalfd.h` are the flags of `open`.
const FLAGS: u32 = raw::O_CLOEXEC | raw::O_NONBLOCK;

fn make(context: &Context<'_>, arguments: &Arguments, flags: u32) -> CallResult {
    let &[number, mask, size, ..] = arguments;
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    let mask: u64 = context.user.read_value(mask)?;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let mask = SignalSet(mask).minus(SignalSet::UNBLOCKABLE);
    if int(number) != -1 {
        let open = context.files().get_usable(int(number))?;
        let file = open.as_kind::<SignalFile>().ok_or(Errno::EINVAL)?;
        file.set_mask(&context.current, mask);
        return Ok(number as u32 as u64);
    }
    context.check_heap()?;
    context.caller().check_open_files()?;
    let kernel = context.kernel;
    let status = raw::O_RDWR | flags & raw::O_NONBLOCK;
    let file = Box::new(SignalFile::new(context.kernel.tasks, mask));
    let open = kernel
        .vfs
        .mounts
        .open_anonymous(kernel.vfs, "[signalfd]", status, file);
    context.caller().add_descriptor(open, flags)
}

fn signalfd(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    make(context, arguments, 0)
}

fn signalfd4(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    make(context, arguments, arguments[3] as u32)
}
