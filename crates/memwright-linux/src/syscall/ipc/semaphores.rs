//! System V semaphores: `semget`, `semop`, `semtimedop`, `semctl` (Linux 7.2 `ipc/sem.c`).

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{call::int, ipc},
};
use alloc::{sync::Arc, vec::Vec};
use memwright_linux_abi::{abi::Timespec, abi_struct, errno::Errno};
use memwright_linux_memory::semaphores::{
    MOST_IN_SET, MOST_SETS, MOST_VALUE, Operated, Operation, Set, Sets, Standing,
};
use memwright_linux_sched::wait::WaitError;
use memwright_linux_vfs::{fs::permission::Permission, user::UserMemory};
use memwright_table::TryPush;

/// Flags and commands of `linux/sem.h` that linux-raw-sys lacks.
mod raw {
    pub const IPC_NOWAIT: u16 = 0o4000;
    pub const SEM_UNDO: u16 = 0x1000;
    pub const GETPID: u32 = 11;
    pub const GETVAL: u32 = 12;
    pub const GETALL: u32 = 13;
    pub const GETNCNT: u32 = 14;
    pub const GETZCNT: u32 = 15;
    pub const SETVAL: u32 = 16;
    pub const SETALL: u32 = 17;
    pub const SEM_STAT: u32 = 18;
    pub const SEM_INFO: u32 = 19;
    pub const SEM_STAT_ANY: u32 = 20;
}

/// Maximum number of operations of one call (`SEMOPM`).
const MOST_OPERATIONS: u64 = 500;
/// Size in bytes of a `struct sem_undo`, as Linux reports it (`SEMUSZ`).
const UNDO_SIZE: u32 = 20;

abi_struct! {
    /// `struct semid64_ds` of `asm/sembuf.h`.
    pub struct SetStatus {
        /// Owner and permissions.
        pub ownership: ipc::Ownership,
        /// Time of the last operation, in seconds since 1970.
        pub operated: i64,
        /// Unused.
        pub unused_operated: u64,
        /// Time of the last change, in seconds since 1970.
        pub changed: i64,
        /// Unused.
        pub unused_changed: u64,
        /// Number of semaphores.
        pub count: u64,
        /// Unused.
        pub rest: [u64; 2],
    }
}

/// Implements `semget`.
pub fn semget(current: &Current<'_>, semaphores: &Sets, arguments: &Arguments) -> CallResult {
    ipc::find_or_make(|| get(current, semaphores, arguments))
}

/// Finds the set with the key that `semget` got, or creates a set. Returns [`ipc::Got::Again`] if another thread has
/// created a set with the key since the search.
fn get(current: &Current<'_>, semaphores: &Sets, arguments: &Arguments) -> Result<ipc::Got, Errno> {
    let &[key, count, flags, ..] = arguments;
    let (key, flags) = (key as u32, flags as u32);
    let count = usize::try_from(int(count)).map_err(|_| Errno::EINVAL)?;
    if count > MOST_IN_SET {
        return Err(Errno::EINVAL);
    }
    let found = match key {
        ipc::IPC_PRIVATE => None,
        key => semaphores.with_key(key),
    };
    if let Some(set) = found {
        let subject = current.caller().subject();
        ipc::check_found(flags, count <= set.count(), |wanted| {
            set.permits(&subject, wanted)
        })?;
        return Ok(ipc::Got::Id(set.id));
    }
    if key != ipc::IPC_PRIVATE && flags & ipc::IPC_CREAT == 0 {
        return Err(Errno::ENOENT);
    }
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    current.check_heap()?;
    let standing = Standing {
        owner: current.caller().subject().owner(),
        mode: flags & 0o777,
        operated: 0,
        changed: current.vfs().now().seconds,
    };
    ipc::Got::of(semaphores.add(key, count, standing))
}

/// Implements `semop`.
pub fn semop(current: &Current<'_>, semaphores: &Sets, arguments: &Arguments) -> CallResult {
    let [id, operations, count, ..] = *arguments;
    operate(current, semaphores, id, operations, count, None)
}

/// Implements `semtimedop`.
pub fn semtimedop(current: &Current<'_>, semaphores: &Sets, arguments: &Arguments) -> CallResult {
    let [id, operations, count, timeout, ..] = *arguments;
    let timeout: Option<Timespec> = current.user.read_optional(timeout)?;
    let timeout = match timeout {
        Some(timeout) => Some(timeout.to_nanoseconds().ok_or(Errno::EINVAL)?),
        None => None,
    };
    operate(current, semaphores, id, operations, count, timeout)
}

/// Performs the operations at `address` in user memory. Waits up to `timeout` nanoseconds until they are possible. If
/// `timeout` is `None`, waits without a limit.
fn operate(
    current: &Current<'_>,
    semaphores: &Sets,
    id: u64,
    address: u64,
    count: u64,
    timeout: Option<u64>,
) -> CallResult {
    let count = count as u32;
    let id = u32::try_from(int(id)).map_err(|_| Errno::EINVAL)?;
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    if u64::from(count) > MOST_OPERATIONS {
        return Err(Errno::E2BIG);
    }
    current.check_heap()?;
    let operations = read_operations(current.user, address, count)?;
    let set = semaphores.find(id).ok_or(Errno::EINVAL)?;
    let largest = operations.iter().map(|one| one.number).max();
    if largest.is_some_and(|largest| usize::from(largest) >= set.count()) {
        return Err(Errno::EFBIG);
    }
    let wanted = if operations.iter().any(|one| one.add != 0) {
        Permission::WRITE
    } else {
        Permission::READ
    };
    may(current, &set, wanted)?;
    let now = current.vfs().now().seconds;
    let process = current.process().id;
    let pending = match set.operate(process, operations, now)? {
        Operated::Done => return Ok(0),
        Operated::Waits(pending) => pending,
    };
    let deadline = timeout.map(|time| current.now().saturating_add(time));
    let waited = current.wait_until(&[&pending.queue], deadline, || pending.outcome());
    let outcome = waited.or_else(|error: WaitError| {
        // Withdraw the operations. If another thread has completed them since the wait ended, return their outcome
        // instead.
        set.give_up(&pending).ok_or_else(|| error.interrupt())
    })?;
    outcome.map(|()| 0)
}

/// Reads `count` operations (`struct sembuf`) from user memory.
fn read_operations(
    user: UserMemory<'_>,
    address: u64,
    count: u32,
) -> Result<Vec<Operation>, Errno> {
    let mut operations = Vec::new();
    operations.try_make_room(count as usize)?;
    for place in 0..u64::from(count) {
        let [number, add, flags]: [u16; 3] = user.read_value(address.wrapping_add(6 * place))?;
        operations.try_push(Operation {
            number,
            add: add as i16,
            never_waits: flags & raw::IPC_NOWAIT != 0,
            undone: flags & raw::SEM_UNDO != 0,
        })?;
    }
    Ok(operations)
}

/// Implements `semctl`.
pub fn semctl(current: &Current<'_>, semaphores: &Sets, arguments: &Arguments) -> CallResult {
    let &[id, number, command, argument, ..] = arguments;
    let command = command as u32 & !ipc::IPC_64;
    let id = u32::try_from(int(id)).map_err(|_| Errno::EINVAL)?;
    if matches!(command, ipc::IPC_INFO | raw::SEM_INFO) {
        return tell_limits(current, semaphores, argument, command == raw::SEM_INFO);
    }
    let value = argument as i32;
    if command == raw::SETVAL && !(0..=MOST_VALUE).contains(&value) {
        return Err(Errno::ERANGE);
    }
    let set = semaphores.find(id);
    let set = set.ok_or(Errno::EINVAL)?;
    match command {
        // For `SEM_STAT`, the index of a set is equal to its id.
        ipc::IPC_STAT | raw::SEM_STAT | raw::SEM_STAT_ANY => {
            if command != raw::SEM_STAT_ANY {
                may(current, &set, Permission::READ)?;
            }
            current.user.write_value(argument, &status(&set))?;
            Ok(if command == ipc::IPC_STAT {
                0
            } else {
                id.into()
            })
        }
        ipc::IPC_SET | ipc::IPC_RMID => administer(current, semaphores, &set, command, argument),
        raw::GETALL | raw::SETALL => all_values(current, &set, command, argument),
        raw::SETVAL => {
            let number = number_in(&set, number)?;
            may(current, &set, Permission::WRITE)?;
            let now = current.vfs().now().seconds;
            let process = current.process().id;
            set.set(number, &[value], process, now);
            Ok(0)
        }
        raw::GETVAL | raw::GETPID | raw::GETNCNT | raw::GETZCNT => {
            may(current, &set, Permission::READ)?;
            let number = number_in(&set, number)?;
            let (value, process) = set.value(number).ok_or(Errno::EINVAL)?;
            Ok(match command {
                raw::GETVAL => value as u64,
                raw::GETPID => process.into(),
                _ => set.waiting(number, command == raw::GETZCNT) as u64,
            })
        }
        _ => Err(Errno::EINVAL),
    }
}

fn may(current: &Current<'_>, set: &Set, wanted: Permission) -> Result<(), Errno> {
    ipc::check(set.permits(&current.caller().subject(), wanted))
}

fn number_in(set: &Set, number: u64) -> Result<usize, Errno> {
    let number = usize::try_from(int(number)).map_err(|_| Errno::EINVAL)?;
    if number < set.count() {
        Ok(number)
    } else {
        Err(Errno::EINVAL)
    }
}

/// Changes the owner and permissions of the set (`IPC_SET`), or removes the set (`IPC_RMID`).
fn administer(
    current: &Current<'_>,
    semaphores: &Sets,
    set: &Arc<Set>,
    command: u32,
    address: u64,
) -> CallResult {
    let wanted: Option<SetStatus> = match command {
        ipc::IPC_SET => Some(current.user.read_value(address)?),
        _ => None,
    };
    if !set.is_owned_by(&current.caller().subject()) {
        return Err(Errno::EPERM);
    }
    let Some(wanted) = wanted else {
        semaphores.remove(set.id);
        return Ok(0);
    };
    let now = current.vfs().now().seconds;
    let (owner, mode) = wanted.ownership.wanted();
    set.set_owner(owner, mode, now);
    Ok(0)
}

/// Returns (`GETALL`) or sets (`SETALL`) the values of all semaphores.
fn all_values(current: &Current<'_>, set: &Set, command: u32, address: u64) -> CallResult {
    // Number of values that are copied through the kernel stack at a time.
    const TOGETHER: usize = 256;
    const WORD: usize = size_of::<u16>();
    let mut words = [0; TOGETHER * WORD];
    let at = |part: usize| address.wrapping_add((part * TOGETHER * WORD) as u64);
    if command == raw::GETALL {
        may(current, set, Permission::READ)?;
        for (part, values) in set.values()?.chunks(TOGETHER).enumerate() {
            for (word, value) in words.chunks_mut(WORD).zip(values) {
                word.copy_from_slice(&(*value as u16).to_ne_bytes());
            }
            current
                .user
                .write_bytes(at(part), &words[..values.len() * WORD])?;
        }
        return Ok(0);
    }
    may(current, set, Permission::WRITE)?;
    current.check_heap()?;
    let mut values = set.values()?;
    for (part, values) in values.chunks_mut(TOGETHER).enumerate() {
        current
            .user
            .read_bytes(at(part), &mut words[..values.len() * WORD])?;
        for (word, value) in words.chunks(WORD).zip(values) {
            *value = u16::from_ne_bytes([word[0], word[1]]).into();
            if *value > MOST_VALUE {
                return Err(Errno::ERANGE);
            }
        }
    }
    let now = current.vfs().now().seconds;
    let process = current.process().id;
    set.set(0, &values, process, now);
    Ok(0)
}

/// Writes a `struct seminfo` with the limits. If `used` is true, two of its fields contain the numbers of sets and
/// semaphores in use instead (`SEM_INFO`).
fn tell_limits(current: &Current<'_>, semaphores: &Sets, address: u64, used: bool) -> CallResult {
    let all = (MOST_IN_SET * MOST_SETS) as u32;
    let (sets, values) = semaphores.totals();
    let most = MOST_VALUE as u32;
    let operations = MOST_OPERATIONS as u32;
    let (size, undone) = if used {
        (sets as u32, values as u32)
    } else {
        (UNDO_SIZE, most)
    };
    let words = [
        all,
        MOST_SETS as u32,
        all,
        all,
        MOST_IN_SET as u32,
        operations,
        operations,
        size,
        most,
        undone,
    ];
    current.user.write_value(address, &words)?;
    Ok(semaphores.largest_id().into())
}

fn status(set: &Set) -> SetStatus {
    let standing = set.standing();
    SetStatus {
        ownership: ipc::Ownership::new(set.key, standing.owner, set.maker, standing.mode),
        operated: standing.operated,
        changed: standing.changed,
        count: set.count() as u64,
        ..SetStatus::default()
    }
}
