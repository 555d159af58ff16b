//! System calls that return file attributes: `stat` and its variants, `access`, `statfs`.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_vfs::{
    fs::{dentry::Dentry, kind::Kind as FileKind, permission::Permission, tmpfs::MountFlags},
    user::UserMemory,
};

use Kind::{DirFd, Fd, Flags, Hex, Int, Mode, Out, Path};

/// The names of the `AT_` flags.
pub const AT_FLAGS: &[(u64, &str)] = &[
    (raw::AT_SYMLINK_NOFOLLOW as u64, "AT_SYMLINK_NOFOLLOW"),
    (raw::AT_EACCESS as u64, "AT_EACCESS"),
    (raw::AT_SYMLINK_FOLLOW as u64, "AT_SYMLINK_FOLLOW"),
    (raw::AT_NO_AUTOMOUNT as u64, "AT_NO_AUTOMOUNT"),
    (raw::AT_EMPTY_PATH as u64, "AT_EMPTY_PATH"),
];

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(raw::__NR_stat, "stat", &[Path, Out(144)], handler!(stat)),
    real(raw::__NR_lstat, "lstat", &[Path, Out(144)], handler!(lstat)),
    real(raw::__NR_fstat, "fstat", &[Fd, Out(144)], handler!(fstat)),
    real(
        raw::__NR_newfstatat,
        "newfstatat",
        &[DirFd, Path, Out(144), Flags(AT_FLAGS)],
        handler!(newfstatat),
    ),
    real(
        raw::__NR_statx,
        "statx",
        &[DirFd, Path, Flags(AT_FLAGS), Hex, Out(256)],
        handler!(statx),
    ),
    real(raw::__NR_access, "access", &[Path, Int], handler!(access)),
    real(
        raw::__NR_faccessat,
        "faccessat",
        &[DirFd, Path, Int],
        handler!(faccessat),
    ),
    real(
        raw::__NR_faccessat2,
        "faccessat2",
        &[DirFd, Path, Int, Flags(AT_FLAGS)],
        handler!(faccessat2),
    ),
    real(
        raw::__NR_statfs,
        "statfs",
        &[Path, Out(120)],
        handler!(statfs, memory),
    ),
    real(
        raw::__NR_fstatfs,
        "fstatfs",
        &[Fd, Out(120)],
        handler!(fstatfs, memory),
    ),
    real(raw::__NR_umask, "umask", &[Mode], handler!(umask)),
];

fn store(current: &Current<'_>, entry: &Dentry, address: u64) -> CallResult {
    let record = entry.inode.attributes(Some(current)).to_stat();
    current.user.write_bytes(address, &record).map(|()| 0)
}

fn stat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let entry = current
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    store(current, &entry, arguments[1])
}

fn lstat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let entry =
        current
            .caller()
            .resolve_at(raw::AT_FDCWD, arguments[0], raw::AT_SYMLINK_NOFOLLOW)?;
    store(current, &entry, arguments[1])
}

fn fstat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = current.files().get(int(arguments[0]))?;
    store(current, &open.entry, arguments[1])
}

const STAT_FLAGS: u32 = raw::AT_SYMLINK_NOFOLLOW | raw::AT_NO_AUTOMOUNT | raw::AT_EMPTY_PATH;

fn newfstatat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, record, flags, ..] = arguments;
    if flags as u32 & !STAT_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let entry = current
        .caller()
        .resolve_at(int(directory), path, flags as u32)?;
    store(current, &entry, record)
}

fn statx(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, flags, mask, record, _] = arguments;
    let sync = raw::AT_STATX_FORCE_SYNC | raw::AT_STATX_DONT_SYNC;
    let (flags, mask) = (flags as u32, mask as u32);
    if flags & !(STAT_FLAGS | sync) != 0 || flags & sync == sync || mask & raw::STATX__RESERVED != 0
    {
        return Err(Errno::EINVAL);
    }
    let entry = current.caller().resolve_at(int(directory), path, flags)?;
    let mount = entry.inode.file_system.mount;
    let root = current.vfs().mounts.is_root(&entry);
    let bytes = entry.inode.attributes(Some(current)).to_statx(mount, root);
    current.user.write_bytes(record, &bytes).map(|()| 0)
}

fn check(current: &Current<'_>, directory: u64, path: u64, mode: u64, flags: u32) -> CallResult {
    let allowed = raw::AT_EACCESS | raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH;
    let wanted = Permission::from_bits(mode as u32).ok_or(Errno::EINVAL)?;
    if flags & !allowed != 0 {
        return Err(Errno::EINVAL);
    }
    let entry = current.caller().resolve_at(int(directory), path, flags)?;
    let flags = entry.inode.file_system.flags();
    let executes = wanted.contains(Permission::EXECUTE) && entry.inode.kind() == FileKind::Regular;
    if executes && flags.contains(MountFlags::NO_EXECUTION) {
        return Err(Errno::EACCES);
    }
    entry
        .inode
        .check(&current.caller().subject(), wanted)
        .map(|()| 0)
}

fn access(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[path, mode, ..] = arguments;
    check(current, raw::AT_FDCWD as u64, path, mode, 0)
}

fn faccessat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, mode, ..] = arguments;
    check(current, directory, path, mode, 0)
}

fn faccessat2(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, mode, flags, ..] = arguments;
    check(current, directory, path, mode, flags as u32)
}

fn store_status(user: UserMemory<'_>, memory: &Memory, entry: &Dentry, address: u64) -> CallResult {
    let status = entry.inode.file_system.status(memory);
    user.write_bytes(address, &status.to_statfs()).map(|()| 0)
}

fn statfs(current: &Current<'_>, memory: &Memory, arguments: &Arguments) -> CallResult {
    let entry = current
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    store_status(current.user, memory, &entry, arguments[1])
}

fn fstatfs(current: &Current<'_>, memory: &Memory, arguments: &Arguments) -> CallResult {
    let open = current.files().get(int(arguments[0]))?;
    store_status(current.user, memory, &open.entry, arguments[1])
}

fn umask(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    Ok(u64::from(current.fs().set_mask(arguments[0] as u32)))
}
