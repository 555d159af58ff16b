//! System calls for the root and the working directory of a process.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::{fs::socket::Registry, user::PATH_MAX};
use memwright_table::TryPush;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_getcwd,
        "getcwd",
        &[Kind::OutBuffer(1), Kind::Unsigned],
        handler!(getcwd),
    ),
    real(
        raw::__NR_chdir,
        "chdir",
        &[Kind::Path],
        handler!(chdir, sockets),
    ),
    real(
        raw::__NR_fchdir,
        "fchdir",
        &[Kind::Fd],
        handler!(fchdir, sockets),
    ),
    real(
        raw::__NR_chroot,
        "chroot",
        &[Kind::Path],
        handler!(chroot, sockets),
    ),
];

fn getcwd(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[address, size, ..] = arguments;
    let fs = current.fs();
    let directory = fs.directory();
    if directory.is_removed() {
        return Err(Errno::ENOENT);
    }
    let path = directory.path_from(&fs.root());
    let (mut path, reached) = path.map_err(|_| Errno::ENOMEM)?;
    path.try_push(0).map_err(|_| Errno::ENOMEM)?;
    let before: &[u8] = if reached { b"" } else { b"(unreachable)" };
    let length = before.len() + path.len();
    // Check `PATH_MAX` before the size of the buffer, like Linux (`fs/d_path.c`).
    if length > PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if length as u64 > size {
        return Err(Errno::ERANGE);
    }
    current.user.write_bytes(address, before)?;
    current
        .user
        .write_bytes(address.wrapping_add(before.len() as u64), &path)?;
    Ok(length as u64)
}

fn chdir(current: &Current<'_>, sockets: &Registry, arguments: &Arguments) -> CallResult {
    let entry = current
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    current.caller().check_enterable(&entry)?;
    current.fs().set_directory(entry);
    current.vfs().mounts.reap(sockets);
    Ok(0)
}

fn fchdir(current: &Current<'_>, sockets: &Registry, arguments: &Arguments) -> CallResult {
    let open = current.files().get(int(arguments[0]))?;
    current.caller().check_enterable(&open.entry)?;
    current.fs().set_directory(open.entry.clone());
    current.vfs().mounts.reap(sockets);
    Ok(0)
}

fn chroot(current: &Current<'_>, sockets: &Registry, arguments: &Arguments) -> CallResult {
    let entry = current
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    current.caller().check_enterable(&entry)?;
    if current.caller().subject().user != 0 {
        return Err(Errno::EPERM);
    }
    current.fs().set_root(entry);
    current.vfs().mounts.reap(sockets);
    Ok(0)
}
