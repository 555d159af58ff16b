//! The root and working directory of a process.

use crate::{
    context::{Arguments, CallResult, Context},
    errno::Errno,
    syscall::call::{Kind, SystemCall, int, real},
    user::PATH_MAX,
};
use linux_raw_sys::general as raw;
use memwright_table::TryPush;

/// The table entries of this group.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_getcwd,
        "getcwd",
        &[Kind::OutBuffer(1), Kind::Unsigned],
        getcwd,
    ),
    real(raw::__NR_chdir, "chdir", &[Kind::Path], chdir),
    real(raw::__NR_fchdir, "fchdir", &[Kind::Fd], fchdir),
    real(raw::__NR_chroot, "chroot", &[Kind::Path], chroot),
];

fn getcwd(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let &[address, size, ..] = arguments;
    let fs = context.fs();
    let directory = fs.directory();
    if directory.is_removed() {
        return Err(Errno::ENOENT);
    }
    let path = directory.path_from(&fs.root());
    let (mut path, reached) = path.map_err(|_| Errno::ENOMEM)?;
    path.try_push(0).map_err(|_| Errno::ENOMEM)?;
    let before: &[u8] = if reached { b"" } else { b"(unreachable)" };
    let length = before.len() + path.len();
    // Make these checks in the same order as Linux (`fs/d_path.c`).
    if length > PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if length as u64 > size {
        return Err(Errno::ERANGE);
    }
    context.user.write_bytes(address, before)?;
    context
        .user
        .write_bytes(address.wrapping_add(before.len() as u64), &path)?;
    Ok(length as u64)
}

fn chdir(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let entry = context
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    context.caller().check_enterable(&entry)?;
    context.fs().set_directory(entry);
    context.kernel.vfs.mounts.reap(&context.kernel.sockets);
    Ok(0)
}

fn fchdir(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let open = context.files().get(int(arguments[0]))?;
    context.caller().check_enterable(&open.entry)?;
    context.fs().set_directory(open.entry.clone());
    context.kernel.vfs.mounts.reap(&context.kernel.sockets);
    Ok(0)
}

fn chroot(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let entry = context
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    context.caller().check_enterable(&entry)?;
    if context.caller().subject().user != 0 {
        return Err(Errno::EPERM);
    }
    context.fs().set_root(entry);
    context.kernel.vfs.mounts.reap(&context.kernel.sockets);
    Ok(0)
}
