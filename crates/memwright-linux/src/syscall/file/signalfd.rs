//! The `signalfd` and `signalfd4` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::boxed::Box;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{errno::Errno, signal::SignalSet};
use memwright_linux_tasks::{process::Tasks, signalfd::SignalFile};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_signalfd,
        "signalfd",
        &[Kind::Int, Kind::In(8), Kind::Unsigned],
        handler!(signalfd, tasks),
    ),
    real(
        raw::__NR_signalfd4,
        "signalfd4",
        &[Kind::Int, Kind::In(8), Kind::Unsigned, Kind::Hex],
        handler!(signalfd4, tasks),
    ),
];

/// `SFD_CLOEXEC` and `SFD_NONBLOCK` of `linux/signalfd.h`. They are equal to the flags of `open`.
const FLAGS: u32 = raw::O_CLOEXEC | raw::O_NONBLOCK;

fn make(
    current: &Current<'_>,
    tasks: &'static Tasks,
    arguments: &Arguments,
    flags: u32,
) -> CallResult {
    let &[number, mask, size, ..] = arguments;
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    let mask: u64 = current.user.read_value(mask)?;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let mask = SignalSet(mask).minus(SignalSet::UNBLOCKABLE);
    if int(number) != -1 {
        let open = current.files().get_usable(int(number))?;
        let file = open.as_kind::<SignalFile>().ok_or(Errno::EINVAL)?;
        file.set_mask(current, mask);
        return Ok(number as u32 as u64);
    }
    current.check_heap()?;
    current.caller().check_open_files()?;
    let vfs = current.vfs();
    let status = raw::O_RDWR | flags & raw::O_NONBLOCK;
    let file = Box::new(SignalFile::new(tasks, mask));
    let open = vfs.mounts.open_anonymous(vfs, "[signalfd]", status, file);
    current.caller().add_descriptor(open, flags)
}

fn signalfd(current: &Current<'_>, tasks: &'static Tasks, arguments: &Arguments) -> CallResult {
    make(current, tasks, arguments, 0)
}

fn signalfd4(current: &Current<'_>, tasks: &'static Tasks, arguments: &Arguments) -> CallResult {
    make(current, tasks, arguments, arguments[3] as u32)
}
