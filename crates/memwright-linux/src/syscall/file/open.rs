//! System calls that open files.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{abi_struct, errno::Errno};
use memwright_linux_vfs::fs::open::OpenRequest;

/// The names of the flags of `open`.
pub const OPEN_FLAGS: &[(u64, &str)] = &[
    (raw::O_WRONLY as u64, "O_WRONLY"),
    (raw::O_RDWR as u64, "O_RDWR"),
    (raw::O_CREAT as u64, "O_CREAT"),
    (raw::O_EXCL as u64, "O_EXCL"),
    (raw::O_NOCTTY as u64, "O_NOCTTY"),
    (raw::O_TRUNC as u64, "O_TRUNC"),
    (raw::O_APPEND as u64, "O_APPEND"),
    (raw::O_NONBLOCK as u64, "O_NONBLOCK"),
    (raw::O_DSYNC as u64, "O_DSYNC"),
    (raw::O_DIRECT as u64, "O_DIRECT"),
    (raw::O_LARGEFILE as u64, "O_LARGEFILE"),
    (raw::O_TMPFILE as u64, "O_TMPFILE"),
    (raw::O_DIRECTORY as u64, "O_DIRECTORY"),
    (raw::O_NOFOLLOW as u64, "O_NOFOLLOW"),
    (raw::O_NOATIME as u64, "O_NOATIME"),
    (raw::O_CLOEXEC as u64, "O_CLOEXEC"),
    (raw::O_PATH as u64, "O_PATH"),
];

/// The flags that Linux defines. `open` ignores other flags; `openat2` rejects them.
const KNOWN: u64 = raw::O_ACCMODE as u64
    | raw::O_SYNC as u64
    | raw::FASYNC as u64
    | raw::O_TMPFILE as u64
    | (raw::O_CREAT | raw::O_EXCL | raw::O_NOCTTY | raw::O_TRUNC | raw::O_APPEND) as u64
    | (raw::O_NONBLOCK | raw::O_DIRECT | raw::O_LARGEFILE | raw::O_NOFOLLOW) as u64
    | (raw::O_NOATIME | raw::O_CLOEXEC | raw::O_PATH) as u64;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_open,
        "open",
        &[Kind::Path, Kind::Flags(OPEN_FLAGS), Kind::Mode],
        handler!(open),
    ),
    real(
        raw::__NR_creat,
        "creat",
        &[Kind::Path, Kind::Mode],
        handler!(creat),
    ),
    real(
        raw::__NR_openat,
        "openat",
        &[Kind::DirFd, Kind::Path, Kind::Flags(OPEN_FLAGS), Kind::Mode],
        handler!(openat),
    ),
    real(
        raw::__NR_openat2,
        "openat2",
        &[Kind::DirFd, Kind::Path, Kind::In(24), Kind::Unsigned],
        handler!(openat2),
    ),
];

abi_struct! {
    /// `struct open_how` of `linux/openat2.h`.
    pub struct OpenHow {
        /// The `O_` flags.
        pub flags: u64,
        /// Permission bits of a file that the call creates.
        pub mode: u64,
        /// The `RESOLVE_` flags.
        pub resolve: u64,
    }
}

fn open_at(current: &Current<'_>, directory: i32, path: u64, flags: u32, mode: u32) -> CallResult {
    let request = OpenRequest::new(flags & KNOWN as u32, mode)?;
    let path = current.user.read_path(path)?;
    let start = current.caller().path_start(directory, &path)?;
    let open = current.caller().open_path(&start, &path, request)?;
    current.caller().add_descriptor(open, flags)
}

fn open(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[path, flags, mode, ..] = arguments;
    open_at(current, raw::AT_FDCWD, path, flags as u32, mode as u32)
}

fn creat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[path, mode, ..] = arguments;
    let flags = raw::O_CREAT | raw::O_WRONLY | raw::O_TRUNC;
    open_at(current, raw::AT_FDCWD, path, flags, mode as u32)
}

fn openat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, flags, mode, ..] = arguments;
    open_at(current, int(directory), path, flags as u32, mode as u32)
}

/// Implements `openat2`. The `RESOLVE_` restrictions are not supported. The call rejects them, because the caller
/// relies on their effect.
fn openat2(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, how, size, ..] = arguments;
    if size < 24 {
        return Err(Errno::EINVAL);
    }
    if size > 24 {
        return Err(Errno::E2BIG);
    }
    let how: OpenHow = current.user.read_value(how)?;
    if how.flags & !KNOWN != 0 || how.mode & !0o7777 != 0 || how.resolve != 0 {
        return Err(Errno::EINVAL);
    }
    let creates = how.flags & (raw::O_CREAT as u64 | raw::O_TMPFILE as u64 & !0o200_000) != 0;
    if how.mode != 0 && !creates {
        return Err(Errno::EINVAL);
    }
    open_at(
        current,
        int(directory),
        path,
        how.flags as u32,
        how.mode as u32,
    )
}
