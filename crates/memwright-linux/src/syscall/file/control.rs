//! The `fcntl`, `flock` and `ioctl` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::{Kind, SystemCall, handler, int, real},
        file::owner::owner_command,
    },
};
use linux_raw_sys::{general as raw, ioctl};
use memwright_linux_abi::{Memory, abi_struct, errno::Errno};
use memwright_linux_tasks::{
    file_signal::{control_asynchronous, set_asynchronous},
    process::Tasks,
};
use memwright_linux_vfs::fs::{
    OpenFile,
    inode::Body,
    locks::{FileLocks, Holder, LockFamily, Record, Strength},
    pipe::{Pipe, PipeEnd},
    regular::{Regular, Seals},
    seek::moved,
};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_fcntl,
        "fcntl",
        &[Kind::Fd, Kind::Int, Kind::Hex],
        handler!(fcntl, tasks, memory),
    ),
    real(
        raw::__NR_flock,
        "flock",
        &[Kind::Fd, Kind::Int],
        handler!(flock),
    ),
    real(
        raw::__NR_ioctl,
        "ioctl",
        &[Kind::Fd, Kind::Hex, Kind::Hex],
        handler!(control, tasks),
    ),
];

/// `F_DUPFD_QUERY` of `include/uapi/linux/fcntl.h`.
const F_DUPFD_QUERY: u32 = raw::F_LINUX_SPECIFIC_BASE + 3;

fn fcntl(
    current: &Current<'_>,
    tasks: &'static Tasks,
    memory: &Memory,
    arguments: &Arguments,
) -> CallResult {
    let &[number, command, argument, ..] = arguments;
    let (number, command) = (int(number), command as u32);
    let files = current.files();
    let open = files.get(number)?;
    // Only these commands and `F_DUPFD_QUERY` are permitted for an `O_PATH` descriptor.
    let on_path = matches!(
        command,
        raw::F_DUPFD | raw::F_DUPFD_CLOEXEC | raw::F_GETFD | raw::F_SETFD | raw::F_GETFL
    );
    if open.is_path() && !on_path && command != F_DUPFD_QUERY {
        return Err(Errno::EBADF);
    }
    match command {
        raw::F_DUPFD | raw::F_DUPFD_CLOEXEC => {
            let limit = current.caller().descriptor_limit();
            let from = usize::try_from(argument as i32).map_err(|_| Errno::EINVAL)?;
            if from >= limit {
                return Err(Errno::EINVAL);
            }
            let close_on_exec = command == raw::F_DUPFD_CLOEXEC;
            files
                .add(from, limit, open, close_on_exec)
                .map(|number| number as u64)
        }
        raw::F_GETFD => files.close_on_exec(number).map(u64::from),
        raw::F_SETFD => {
            let close_on_exec = argument as u32 & raw::FD_CLOEXEC != 0;
            files.set_close_on_exec(number, close_on_exec).map(|()| 0)
        }
        F_DUPFD_QUERY => {
            let other = files.get(int(argument))?;
            Ok(u64::from(alloc::sync::Arc::ptr_eq(&open, &other)))
        }
        raw::F_GETFL => Ok(u64::from(open.flags() & !raw::O_CLOEXEC)),
        raw::F_SETFL => {
            let gains = argument as u32 & !open.flags();
            if gains & raw::O_NOATIME != 0 {
                open.inode().check_owner(&current.caller().subject())?;
            }
            let wanted = argument as u32 & raw::FASYNC != 0;
            set_asynchronous(current.caller(), tasks, &open, number, wanted)?;
            open.set_flags(argument as u32);
            Ok(0)
        }
        raw::F_GETLK => query_lock(current, &open, argument, false),
        raw::F_OFD_GETLK => query_lock(current, &open, argument, true),
        raw::F_SETLK => set_lock(current, &open, argument, false, false),
        raw::F_SETLKW => set_lock(current, &open, argument, false, true),
        raw::F_OFD_SETLK => set_lock(current, &open, argument, true, false),
        raw::F_OFD_SETLKW => set_lock(current, &open, argument, true, true),
        raw::F_GETPIPE_SZ => Ok(pipe(&open)?.capacity() as u64),
        raw::F_SETPIPE_SZ => {
            current.check_heap()?;
            let size = pipe(&open)?.set_capacity(current, argument as u32 as usize)?;
            Ok(size as u64)
        }
        raw::F_GET_SEALS => Ok(u64::from(sealable(&open)?.seals().bits())),
        raw::F_ADD_SEALS => {
            if !open.is_writable() {
                return Err(Errno::EPERM);
            }
            let seals = Seals::from_bits(argument as u32).ok_or(Errno::EINVAL)?;
            let regular = sealable(&open)?;
            let _turn = regular.take_turn(current)?;
            let runs = open.inode().metadata().permissions & 0o111 != 0;
            regular.add_seals(memory, seals, runs).map(|()| 0)
        }
        _ => {
            let owner = owner_command(current.caller(), tasks, &open, command, argument);
            owner.unwrap_or(Err(Errno::EINVAL))
        }
    }
}

fn pipe(open: &OpenFile) -> Result<&Pipe, Errno> {
    open.as_kind::<PipeEnd>()
        .map(|end| &*end.pipe)
        .ok_or(Errno::EBADF)
}

fn sealable(open: &OpenFile) -> Result<&Regular, Errno> {
    open.inode().regular().ok_or(Errno::EINVAL)
}

abi_struct! {
    /// `struct flock` of `asm-generic/fcntl.h`.
    pub struct FileLock {
        /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
        pub kind: i16,
        /// The position to which `start` is relative.
        pub whence: i16,
        /// Padding.
        pub padding: u32,
        /// Offset of the first byte, relative to `whence`.
        pub start: i64,
        /// Length in bytes; 0 for all bytes from `start` on, negative for bytes before `start`.
        pub length: i64,
        /// Id of the process that holds the lock.
        pub process: i32,
        /// Padding.
        pub padding_behind: u32,
    }
}

/// Returns the offsets of the first and the last byte of a lock.
///
/// # Errors
/// `EINVAL` if the lock would begin before the start of the file, `EOVERFLOW` if it would end after the largest offset.
fn lock_range(base: u64, start: i64, length: i64) -> Result<(u64, u64), Errno> {
    let start = moved(base, start)?;
    match length {
        0 => Ok((start, u64::MAX)),
        1.. => {
            let last = moved(start, length - 1)?;
            Ok((start, last))
        }
        _ => {
            let first = moved(start, length)?;
            Ok((first, start - 1))
        }
    }
}

fn lock_request(
    current: &Current<'_>,
    open: &OpenFile,
    address: u64,
    by_file: bool,
) -> Result<(FileLock, Holder, u64, u64), Errno> {
    let lock: FileLock = current.user.read_value(address)?;
    let base = match lock.whence as u32 {
        raw::SEEK_SET => 0,
        raw::SEEK_CUR => open.position(),
        raw::SEEK_END => open.attributes(current).size,
        _ => return Err(Errno::EINVAL),
    };
    if by_file && lock.process != 0 {
        return Err(Errno::EINVAL);
    }
    let (first, last) = lock_range(base, lock.start, lock.length)?;
    let own = Holder::Process(current.process().id.into());
    let holder = if by_file { open.holder() } else { own };
    Ok((lock, holder, first, last))
}

fn set_lock(
    current: &Current<'_>,
    open: &OpenFile,
    address: u64,
    by_file: bool,
    wait: bool,
) -> CallResult {
    let (lock, holder, first, last) = lock_request(current, open, address, by_file)?;
    let files = current.files();
    let held = if by_file { &open.locked } else { &files.locked };
    let family = LockFamily::Record;
    let strength = match lock.kind as u32 {
        raw::F_UNLCK => {
            let locks = &open.inode().locks;
            return locks
                .release(family, (holder, first, last), held)
                .map(|()| 0);
        }
        raw::F_RDLCK if open.is_readable() => Strength::Shared,
        raw::F_WRLCK if open.is_writable() => Strength::Exclusive,
        raw::F_RDLCK | raw::F_WRLCK => return Err(Errno::EBADF),
        _ => return Err(Errno::EINVAL),
    };
    let record = Record {
        holder,
        strength,
        first,
        last,
    };
    FileLocks::acquire(current, open.inode(), (family, record), wait, held).map(|()| 0)
}

fn query_lock(current: &Current<'_>, open: &OpenFile, address: u64, by_file: bool) -> CallResult {
    let (mut lock, holder, first, last) = lock_request(current, open, address, by_file)?;
    let strength = match lock.kind as u32 {
        raw::F_RDLCK => Strength::Shared,
        raw::F_WRLCK => Strength::Exclusive,
        _ => return Err(Errno::EINVAL),
    };
    match open.inode().locks.conflict(&Record {
        holder,
        strength,
        first,
        last,
    }) {
        None => lock.kind = raw::F_UNLCK as i16,
        Some(found) => {
            let kind = match found.strength {
                Strength::Shared => raw::F_RDLCK,
                Strength::Exclusive => raw::F_WRLCK,
            };
            lock.kind = kind as i16;
            lock.whence = raw::SEEK_SET as i16;
            lock.start = found.first as i64;
            lock.length = if found.last == u64::MAX {
                0
            } else {
                (found.last - found.first + 1) as i64
            };
            lock.process = match found.holder {
                Holder::Process(id) => id as i32,
                Holder::OpenFile(_) => -1,
            };
        }
    }
    current.user.write_value(address, &lock).map(|()| 0)
}

fn flock(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let operation = arguments[1] as u32;
    let open = current.files().get_usable(int(arguments[0]))?;
    let locks = &open.inode().locks;
    let strength = match operation & !raw::LOCK_NB {
        raw::LOCK_SH => Strength::Shared,
        raw::LOCK_EX => Strength::Exclusive,
        raw::LOCK_UN => {
            let family = LockFamily::Whole;
            let all = (open.holder(), 0, u64::MAX);
            return locks.release(family, all, &open.locked).map(|()| 0);
        }
        _ => return Err(Errno::EINVAL),
    };
    let wait = operation & raw::LOCK_NB == 0;
    let record = Record {
        holder: open.holder(),
        strength,
        first: 0,
        last: u64::MAX,
    };
    let wanted = (LockFamily::Whole, record);
    FileLocks::acquire(current, open.inode(), wanted, wait, &open.locked).map(|()| 0)
}

fn control(current: &Current<'_>, tasks: &'static Tasks, arguments: &Arguments) -> CallResult {
    let &[number, command, argument, ..] = arguments;
    let (number, command) = (int(number), command as u32);
    let files = current.files();
    let open = files.get_usable(number)?;
    match command {
        ioctl::FIOCLEX => files.set_close_on_exec(number, true).map(|()| 0),
        ioctl::FIONCLEX => files.set_close_on_exec(number, false).map(|()| 0),
        ioctl::FIONBIO => {
            let on: i32 = current.user.read_value(argument)?;
            let rest = open.flags() & !raw::O_NONBLOCK;
            open.set_flags(if on != 0 {
                rest | raw::O_NONBLOCK
            } else {
                rest
            });
            Ok(0)
        }
        ioctl::FIOASYNC => {
            let on: i32 = current.user.read_value(argument)?;
            control_asynchronous(current.caller(), tasks, &open, number, on != 0).map(|()| 0)
        }
        ioctl::FIONREAD if matches!(open.inode().body, Body::Regular(_)) => {
            let left = open.attributes(current).size as i64 - open.position() as i64;
            current
                .user
                .write_value(argument, &(left as i32))
                .map(|()| 0)
        }
        _ => open.file.control(current, &open, command, argument),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_ranges() {
        let cases = [
            (0, 0, 0, Ok((0, u64::MAX))),
            (10, 5, 10, Ok((15, 24))),
            (10, 0, -10, Ok((0, 9))),
            (10, 0, -11, Err(Errno::EINVAL)),
            (10, -11, 1, Err(Errno::EINVAL)),
            (0, i64::MAX, 1, Ok((i64::MAX as u64, i64::MAX as u64))),
            (0, i64::MAX, 2, Err(Errno::EOVERFLOW)),
            (1, i64::MAX, 1, Err(Errno::EOVERFLOW)),
        ];
        for (base, start, length, range) in cases {
            assert_eq!(
                lock_range(base, start, length),
                range,
                "{base} {start} {length}"
            );
        }
    }
}
