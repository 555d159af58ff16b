//! System calls that change a file's permissions, owner, times and size.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::{Kind, SystemCall, handler, int, real},
        file::status::AT_FLAGS,
    },
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    abi::{Timespec, Timeval},
    errno::Errno,
};
use memwright_linux_vfs::fs::{
    attributes::Moment,
    inode::{Body, Inode},
    lower,
    permission::{Permission, SET_GROUP_ID, after_new_owner, may_set_group_id},
    regular::{Regular, Seals},
    seek::{SIZE_MAX, explicit},
    vfs::Vfs,
};
use memwright_table::PAGE_SIZE;

use Kind::{DirFd, Fd, Flags, Hex, In, Int, Mode, Path};

const ALLOCATE_FLAGS: &[(u64, &str)] = &[
    (raw::FALLOC_FL_KEEP_SIZE as u64, "FALLOC_FL_KEEP_SIZE"),
    (raw::FALLOC_FL_PUNCH_HOLE as u64, "FALLOC_FL_PUNCH_HOLE"),
    (raw::FALLOC_FL_ZERO_RANGE as u64, "FALLOC_FL_ZERO_RANGE"),
];

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(raw::__NR_chmod, "chmod", &[Path, Mode], handler!(chmod)),
    real(raw::__NR_fchmod, "fchmod", &[Fd, Mode], handler!(fchmod)),
    real(
        raw::__NR_fchmodat,
        "fchmodat",
        &[DirFd, Path, Mode],
        handler!(fchmodat),
    ),
    real(
        raw::__NR_fchmodat2,
        "fchmodat2",
        &[DirFd, Path, Mode, Flags(AT_FLAGS)],
        handler!(fchmodat2),
    ),
    real(raw::__NR_chown, "chown", &[Path, Int, Int], handler!(chown)),
    real(
        raw::__NR_lchown,
        "lchown",
        &[Path, Int, Int],
        handler!(lchown),
    ),
    real(
        raw::__NR_fchown,
        "fchown",
        &[Fd, Int, Int],
        handler!(fchown),
    ),
    real(
        raw::__NR_fchownat,
        "fchownat",
        &[DirFd, Path, Int, Int, Flags(AT_FLAGS)],
        handler!(fchownat),
    ),
    real(raw::__NR_utime, "utime", &[Path, In(16)], handler!(utime)),
    real(
        raw::__NR_utimes,
        "utimes",
        &[Path, In(32)],
        handler!(utimes),
    ),
    real(
        raw::__NR_futimesat,
        "futimesat",
        &[DirFd, Path, In(32)],
        handler!(futimesat),
    ),
    real(
        raw::__NR_utimensat,
        "utimensat",
        &[DirFd, Path, In(32), Flags(AT_FLAGS)],
        handler!(utimensat),
    ),
    real(
        raw::__NR_truncate,
        "truncate",
        &[Path, Int],
        handler!(truncate),
    ),
    real(
        raw::__NR_ftruncate,
        "ftruncate",
        &[Fd, Int],
        handler!(ftruncate),
    ),
    real(
        raw::__NR_fallocate,
        "fallocate",
        &[Fd, Flags(ALLOCATE_FLAGS), Int, Int],
        handler!(fallocate),
    ),
    // Files are stored in memory and need no writeback: these calls only check their arguments.
    real(raw::__NR_fsync, "fsync", &[Fd], handler!(fsync)),
    real(raw::__NR_fdatasync, "fdatasync", &[Fd], handler!(fsync)),
    real(raw::__NR_syncfs, "syncfs", &[Fd], handler!(syncfs)),
    real(raw::__NR_sync, "sync", &[], handler!(sync)),
    real(
        raw::__NR_sync_file_range,
        "sync_file_range",
        &[Fd, Int, Int, Hex],
        handler!(fsync),
    ),
    // Like on tmpfs, advice about files in memory has no effect: the call only checks its arguments (Linux 7.2
    // `mm/fadvise.c`, `generic_fadvise`).
    real(
        raw::__NR_fadvise64,
        "fadvise64",
        &[Fd, Int, Int, Int],
        handler!(fadvise64),
    ),
    real(
        raw::__NR_readahead,
        "readahead",
        &[Fd, Int, Int],
        handler!(readahead),
    ),
];

/// Checks that the caller owns the inode or is root. Other users are not allowed to change its attributes.
fn own(current: &Current<'_>, inode: &Inode) -> Result<(), Errno> {
    inode.check_owner(&current.caller().subject())
}

fn change_mode(current: &Current<'_>, inode: &Inode, mode: u64) -> CallResult {
    own(current, inode)?;
    match &inode.body {
        Body::Symlink(_) => return Err(Errno::EOPNOTSUPP),
        Body::Generated(_) => return Err(Errno::EPERM),
        Body::Regular(regular) => {
            let now = inode.metadata().permissions;
            if regular.seals().contains(Seals::EXEC) && (now ^ mode as u32) & 0o111 != 0 {
                return Err(Errno::EPERM);
            }
        }
        Body::Directory(_)
        | Body::Character(_)
        | Body::Block(_)
        | Body::Fifo(_)
        | Body::Socket
        | Body::Console(_)
        | Body::Anonymous => {}
    }
    let now = current.vfs().now();
    let subject = current.caller().subject();
    inode.change(|metadata| {
        metadata.permissions = mode as u32 & 0o7777;
        if !may_set_group_id(&subject, metadata.owner.group) {
            metadata.permissions &= !SET_GROUP_ID;
        }
        metadata.changed = now;
    });
    Ok(0)
}

fn chmod(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let entry = current
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    change_mode(current, &entry.inode, arguments[1])
}

fn fchmod(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = current.files().get_usable(int(arguments[0]))?;
    change_mode(current, open.inode(), arguments[1])
}

fn fchmodat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let entry = current
        .caller()
        .resolve_at(int(arguments[0]), arguments[1], 0)?;
    change_mode(current, &entry.inode, arguments[2])
}

fn fchmodat2(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, mode, flags, ..] = arguments;
    if flags as u32 & !(raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let entry = current
        .caller()
        .resolve_at(int(directory), path, flags as u32)?;
    change_mode(current, &entry.inode, mode)
}

/// Sets the owner and the group of an inode; -1 leaves the owner or the group unchanged. Executables lose their set-id
/// bits.
fn change_owner(current: &Current<'_>, inode: &Inode, user: u64, group: u64) -> CallResult {
    let (user, group) = (user as u32, group as u32);
    let before = inode.metadata();
    let keep = u32::MAX;
    let subject = current.caller().subject();
    if subject.user != 0 {
        let owner = subject.user == before.owner.user && (user == keep || user == subject.user);
        if !owner || (group != keep && !subject.is_in(group)) {
            return Err(Errno::EPERM);
        }
    }
    if matches!(inode.body, Body::Generated(_)) {
        return Err(Errno::EPERM);
    }
    let now = current.vfs().now();
    let directory = inode.is_directory();
    inode.change(|metadata| {
        if !directory {
            let group = metadata.owner.group;
            metadata.permissions = after_new_owner(&subject, metadata.permissions, group);
        }
        if user != keep {
            metadata.owner.user = user;
        }
        if group != keep {
            metadata.owner.group = group;
        }
        metadata.changed = now;
    });
    Ok(0)
}

fn chown(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let entry = current
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    change_owner(current, &entry.inode, arguments[1], arguments[2])
}

fn lchown(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let entry =
        current
            .caller()
            .resolve_at(raw::AT_FDCWD, arguments[0], raw::AT_SYMLINK_NOFOLLOW)?;
    change_owner(current, &entry.inode, arguments[1], arguments[2])
}

fn fchown(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = current.files().get_usable(int(arguments[0]))?;
    change_owner(current, open.inode(), arguments[1], arguments[2])
}

fn fchownat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, user, group, flags, _] = arguments;
    if flags as u32 & !(raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let entry = current
        .caller()
        .resolve_at(int(directory), path, flags as u32)?;
    change_owner(current, &entry.inode, user, group)
}

/// The new value of the access time or of the modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewTime {
    Now,
    Keep,
    At(Moment),
}

impl NewTime {
    /// Decodes a time of `utimensat`.
    fn decode(time: Timespec) -> Result<Self, Errno> {
        // `UTIME_NOW` and `UTIME_OMIT` of `linux/stat.h`.
        match time.nanoseconds {
            0x3fff_ffff => Ok(Self::Now),
            0x3fff_fffe => Ok(Self::Keep),
            nanoseconds @ 0..=999_999_999 => {
                let nanoseconds = nanoseconds as u32;
                Ok(Self::At(Moment {
                    seconds: time.seconds,
                    nanoseconds,
                }))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn from_timeval(time: Timeval) -> Result<Self, Errno> {
        if !(0..1_000_000).contains(&time.microseconds) {
            return Err(Errno::EINVAL);
        }
        let nanoseconds = time.microseconds as u32 * 1000;
        Ok(Self::At(Moment {
            seconds: time.seconds,
            nanoseconds,
        }))
    }

    fn resolve(self, now: Moment) -> Option<Moment> {
        match self {
            Self::Now => Some(now),
            Self::Keep => None,
            Self::At(moment) => Some(moment),
        }
    }
}

fn set_times(current: &Current<'_>, inode: &Inode, times: [NewTime; 2]) -> CallResult {
    if times == [NewTime::Keep; 2] {
        return Ok(0);
    }
    if times == [NewTime::Now; 2] {
        // Write permission suffices for setting both times to the present time.
        own(current, inode)
            .or_else(|_| inode.check(&current.caller().subject(), Permission::WRITE))?;
    } else {
        own(current, inode)?;
    }
    let now = current.vfs().now();
    inode.change(|metadata| {
        if let Some(time) = times[0].resolve(now) {
            metadata.accessed = time;
        }
        if let Some(time) = times[1].resolve(now) {
            metadata.modified = time;
        }
        metadata.changed = now;
    });
    Ok(0)
}

fn utimensat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, times, flags, ..] = arguments;
    let flags = flags as u32;
    let times = match current.user.read_optional::<[Timespec; 2]>(times)? {
        Some([accessed, modified]) => [NewTime::decode(accessed)?, NewTime::decode(modified)?],
        None => [NewTime::Now; 2],
    };
    if flags & !(raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    if path == 0 && flags == 0 {
        // Without a path, the call changes the file of the descriptor itself (`futimens`).
        let open = current.files().get_usable(int(directory))?;
        return set_times(current, open.inode(), times);
    }
    let entry = current.caller().resolve_at(int(directory), path, flags)?;
    set_times(current, &entry.inode, times)
}

fn set_timevals(current: &Current<'_>, directory: u64, path: u64, times: u64) -> CallResult {
    let times = match current.user.read_optional::<[Timeval; 2]>(times)? {
        Some([accessed, modified]) => [
            NewTime::from_timeval(accessed)?,
            NewTime::from_timeval(modified)?,
        ],
        None => [NewTime::Now; 2],
    };
    let entry = current.caller().resolve_at(int(directory), path, 0)?;
    set_times(current, &entry.inode, times)
}

fn utimes(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    set_timevals(current, raw::AT_FDCWD as u64, arguments[0], arguments[1])
}

fn futimesat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    set_timevals(current, arguments[0], arguments[1], arguments[2])
}

fn utime(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let times = match current.user.read_optional::<[i64; 2]>(arguments[1])? {
        Some(seconds) => seconds.map(|seconds| {
            NewTime::At(Moment {
                seconds,
                nanoseconds: 0,
            })
        }),
        None => [NewTime::Now; 2],
    };
    let entry = current
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    set_times(current, &entry.inode, times)
}

/// Returns the error of setting the size of an inode that is not a regular file.
fn unsized_error(inode: &Inode) -> Errno {
    if inode.is_directory() {
        Errno::EISDIR
    } else {
        Errno::EINVAL
    }
}

/// Sets the size of a regular file.
fn resize(current: &Current<'_>, inode: &Inode, size: u64) -> CallResult {
    let Body::Regular(regular) = &inode.body else {
        return Err(unsized_error(inode));
    };
    if size > current.caller().file_size_limit() && size > regular.size() {
        current.caller().file_too_large();
        return Err(Errno::EFBIG);
    }
    let turn = regular.take_turn(current)?;
    // The size of a secretmem file can be set only once (`mm/secretmem.c`, `secretmem_setattr`).
    if regular.is_secret() && regular.size() > 0 {
        return Err(Errno::EINVAL);
    }
    inode.drop_set_ids(current);
    regular.set_size(current.vfs(), size)?;
    drop(turn);
    inode.touch_modified(current.vfs().now());
    Ok(0)
}

fn truncate(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let size = explicit(arguments[1] as i64)?;
    let entry = current
        .caller()
        .resolve_at(raw::AT_FDCWD, arguments[0], 0)?;
    let inode = &entry.inode;
    let Body::Regular(regular) = &inode.body else {
        return Err(unsized_error(inode));
    };
    inode.check(&current.caller().subject(), Permission::WRITE)?;
    lower::copy_up(current.caller(), inode, regular)?;
    regular.begin_writing()?;
    let result = resize(current, inode, size);
    regular.end_writing();
    result
}

fn ftruncate(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let size = explicit(arguments[1] as i64)?;
    let open = current.files().get_usable(int(arguments[0]))?;
    if !open.is_writable() {
        return Err(Errno::EINVAL);
    }
    resize(current, open.inode(), size)
}

fn fallocate(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, mode, offset, length, ..] = arguments;
    let (mode, offset, length) = (mode as u32, offset as i64, length as i64);
    let open = current.files().get_usable(int(number))?;
    if offset < 0 || length <= 0 {
        return Err(Errno::EINVAL);
    }
    let hole = raw::FALLOC_FL_PUNCH_HOLE | raw::FALLOC_FL_KEEP_SIZE;
    if !matches!(mode, 0 | raw::FALLOC_FL_KEEP_SIZE) && mode != hole {
        return Err(Errno::EOPNOTSUPP);
    }
    if !open.is_writable() {
        return Err(Errno::EBADF);
    }
    let inode = open.inode();
    let regular = match &inode.body {
        Body::Regular(regular) if regular.is_secret() => return Err(Errno::EOPNOTSUPP),
        Body::Regular(regular) => regular,
        Body::Fifo(_) => return Err(Errno::ESPIPE),
        Body::Directory(_) => return Err(Errno::EISDIR),
        Body::Socket
        | Body::Symlink(_)
        | Body::Character(_)
        | Body::Block(_)
        | Body::Console(_)
        | Body::Anonymous
        | Body::Generated(_) => return Err(Errno::ENODEV),
    };
    let start = offset as u64;
    let end = start + length as u64;
    if end > SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    let turn = regular.take_turn(current)?;
    inode.drop_set_ids(current);
    if mode == hole {
        punch(current.vfs(), regular, start, end)?;
    } else {
        let grows = mode == 0 && end > regular.size();
        if grows && end > current.caller().file_size_limit() {
            current.caller().file_too_large();
            return Err(Errno::EFBIG);
        }
        // For `F_SEAL_GROW`, allocation after the end counts as growth even if the size does not change (`mm/shmem.c`,
        // `shmem_fallocate`).
        if end > regular.size() && regular.seals().contains(Seals::GROW) {
            return Err(Errno::EPERM);
        }
        // The end of the last page must be a valid offset too (Linux 7.3 `mm/shmem.c`, `shmem_fallocate`).
        if end > SIZE_MAX - (PAGE_SIZE as u64 - 1) {
            return Err(Errno::EFBIG);
        }
        regular.allocate(current.vfs(), start, end)?;
        if grows {
            regular.grow_to(end);
        }
    }
    drop(turn);
    inode.touch_modified(current.vfs().now());
    Ok(0)
}

fn punch(vfs: &Vfs, regular: &Regular, start: u64, end: u64) -> Result<(), Errno> {
    if regular
        .seals()
        .intersects(Seals::WRITE | Seals::FUTURE_WRITE)
    {
        return Err(Errno::EPERM);
    }
    regular.punch(vfs, start, end)
}

fn fsync(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = current.files().get_usable(int(arguments[0]))?;
    match &open.inode().body {
        Body::Regular(_) | Body::Directory(_) | Body::Block(_) => Ok(0),
        Body::Symlink(_)
        | Body::Character(_)
        | Body::Fifo(_)
        | Body::Socket
        | Body::Console(_)
        | Body::Anonymous
        | Body::Generated(_) => Err(Errno::EINVAL),
    }
}

/// Implements `syncfs`. The call only checks the descriptor, because every open file belongs to a file system.
fn syncfs(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    current.files().get_usable(int(arguments[0]))?;
    Ok(0)
}

fn sync(_current: &Current<'_>, _arguments: &Arguments) -> CallResult {
    Ok(0)
}

fn fadvise64(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[number, _, length, advice, ..] = arguments;
    let open = current.files().get_usable(int(number))?;
    if matches!(open.inode().body, Body::Fifo(_)) {
        return Err(Errno::ESPIPE);
    }
    if (length as i64) < 0 || advice > 5 {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

fn readahead(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let open = current.files().get_usable(int(arguments[0]))?;
    if !open.is_readable() {
        return Err(Errno::EBADF);
    }
    match &open.inode().body {
        Body::Regular(_) => Ok(0),
        Body::Directory(_)
        | Body::Symlink(_)
        | Body::Character(_)
        | Body::Block(_)
        | Body::Fifo(_)
        | Body::Socket
        | Body::Console(_)
        | Body::Anonymous
        | Body::Generated(_) => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_decoded() {
        let time = |seconds, nanoseconds| {
            NewTime::decode(Timespec {
                seconds,
                nanoseconds,
            })
        };
        assert_eq!(time(5, 0x3fff_ffff), Ok(NewTime::Now));
        assert_eq!(time(5, 0x3fff_fffe), Ok(NewTime::Keep));
        assert_eq!(time(5, -1), Err(Errno::EINVAL));
        assert_eq!(
            time(5, memwright_linux_abi::abi::SECOND as i64),
            Err(Errno::EINVAL)
        );
        let moment = Moment {
            seconds: -5,
            nanoseconds: 7,
        };
        assert_eq!(time(-5, 7), Ok(NewTime::At(moment)));
        let late = Timeval {
            seconds: 0,
            microseconds: 1_000_000,
        };
        assert_eq!(NewTime::from_timeval(late), Err(Errno::EINVAL));
    }
}
