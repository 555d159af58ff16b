//! System calls for users, groups and capabilities.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, real},
};
use core::mem;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{abi::Plain, abi_struct, errno::Errno};
use memwright_linux_base::{paged::Paged, sync::PausePoints};
use memwright_linux_memory::memory::Spaces;
use memwright_linux_tasks::process::{Process, Tasks};
use memwright_linux_vfs::{
    identity::{Capabilities, CapabilitySets, Credentials, GROUPS_MAX, Groups, Ids, Users},
    user::UserMemory,
};
use memwright_table::OutOfMemory;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(raw::__NR_getuid, "getuid", &[], handler!(getuid)),
    real(raw::__NR_getgid, "getgid", &[], handler!(getgid)),
    real(
        raw::__NR_setuid,
        "setuid",
        &[Kind::Int],
        handler!(setuid, users, spaces),
    ),
    real(raw::__NR_setgid, "setgid", &[Kind::Int], handler!(setgid)),
    real(raw::__NR_geteuid, "geteuid", &[], handler!(geteuid)),
    real(raw::__NR_getegid, "getegid", &[], handler!(getegid)),
    real(
        raw::__NR_setreuid,
        "setreuid",
        &[Kind::Int, Kind::Int],
        handler!(setreuid, users, spaces),
    ),
    real(
        raw::__NR_setregid,
        "setregid",
        &[Kind::Int, Kind::Int],
        handler!(setregid),
    ),
    real(
        raw::__NR_getgroups,
        "getgroups",
        &[Kind::Int, Kind::Out(4)],
        handler!(getgroups),
    ),
    real(
        raw::__NR_setgroups,
        "setgroups",
        &[Kind::Int, Kind::In(4)],
        handler!(setgroups),
    ),
    real(
        raw::__NR_setresuid,
        "setresuid",
        &[Kind::Int, Kind::Int, Kind::Int],
        handler!(setresuid, users, spaces),
    ),
    real(
        raw::__NR_getresuid,
        "getresuid",
        &[Kind::Out(4), Kind::Out(4), Kind::Out(4)],
        handler!(getresuid),
    ),
    real(
        raw::__NR_setresgid,
        "setresgid",
        &[Kind::Int, Kind::Int, Kind::Int],
        handler!(setresgid),
    ),
    real(
        raw::__NR_getresgid,
        "getresgid",
        &[Kind::Out(4), Kind::Out(4), Kind::Out(4)],
        handler!(getresgid),
    ),
    real(
        raw::__NR_setfsuid,
        "setfsuid",
        &[Kind::Int],
        handler!(setfsuid, users, spaces),
    ),
    real(
        raw::__NR_setfsgid,
        "setfsgid",
        &[Kind::Int],
        handler!(setfsgid),
    ),
    real(
        raw::__NR_capget,
        "capget",
        &[Kind::InOut(8), Kind::Out(24)],
        handler!(capget, tasks),
    ),
    real(
        raw::__NR_capset,
        "capset",
        &[Kind::InOut(8), Kind::In(24)],
        handler!(capset, spaces),
    ),
];

fn read(process: &Process, get: impl FnOnce(&Credentials) -> u32) -> CallResult {
    Ok(get(&process.identity.credentials.lock()).into())
}

/// Implements `getuid`.
fn getuid(current: &Current<'_>, _arguments: &Arguments) -> CallResult {
    read(current.process(), |credentials| credentials.user.real)
}

/// Implements `geteuid`.
fn geteuid(current: &Current<'_>, _arguments: &Arguments) -> CallResult {
    read(current.process(), |credentials| credentials.user.effective)
}

/// Implements `getgid`.
fn getgid(current: &Current<'_>, _arguments: &Arguments) -> CallResult {
    read(current.process(), |credentials| credentials.group.real)
}

/// Implements `getegid`.
fn getegid(current: &Current<'_>, _arguments: &Arguments) -> CallResult {
    read(current.process(), |credentials| credentials.group.effective)
}

/// Changes the user ids. A process that is no longer root loses its capabilities.
fn change_user<R>(
    current: &Current<'_>,
    users: &Users,
    spaces: &Spaces,
    change: impl FnOnce(&mut Ids, bool) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let process = current.process();
    let (before, result, real, capabilities) = {
        let mut credentials = process.identity.credentials.lock();
        let before = credentials.clone();
        let result = credentials.change_user(change)?;
        let capabilities = credentials.capabilities.effective;
        (before, result, credentials.user.real, capabilities)
    };
    if real != before.user.real {
        match users.get(real) {
            Ok(user) => process.change_user(user),
            // Linux too returns `EAGAIN` if it cannot allocate the new user's counts (`set_user`).
            Err(OutOfMemory) => {
                *process.identity.credentials.lock() = before;
                return Err(Errno::EAGAIN);
            }
        }
    }
    let limits = spaces.limits(&process.identity.limits.lock(), capabilities);
    current.with_space(|space| space.set_limits(limits));
    Ok(result)
}

fn change_group<R>(
    current: &Current<'_>,
    change: impl FnOnce(&mut Ids, bool) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut credentials = current.process().identity.credentials.lock();
    let privileged = credentials.has(Capabilities::SET_GROUP);
    change(&mut credentials.group, privileged)
}

/// Implements `setuid`.
fn setuid(
    current: &Current<'_>,
    users: &Users,
    spaces: &Spaces,
    arguments: &Arguments,
) -> CallResult {
    change_user(current, users, spaces, |ids, privileged| {
        ids.set(arguments[0] as u32, privileged)
    })?;
    Ok(0)
}

/// Implements `setgid`.
fn setgid(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    change_group(current, |ids, privileged| {
        ids.set(arguments[0] as u32, privileged)
    })?;
    Ok(0)
}

/// Implements `setreuid`.
fn setreuid(
    current: &Current<'_>,
    users: &Users,
    spaces: &Spaces,
    arguments: &Arguments,
) -> CallResult {
    let [real, effective, ..] = arguments.map(|id| id as u32);
    change_user(current, users, spaces, |ids, privileged| {
        ids.set_two(real, effective, privileged)
    })?;
    Ok(0)
}

/// Implements `setregid`.
fn setregid(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, ..] = arguments.map(|id| id as u32);
    change_group(current, |ids, privileged| {
        ids.set_two(real, effective, privileged)
    })?;
    Ok(0)
}

/// Implements `setresuid`.
fn setresuid(
    current: &Current<'_>,
    users: &Users,
    spaces: &Spaces,
    arguments: &Arguments,
) -> CallResult {
    let [real, effective, saved, ..] = arguments.map(|id| id as u32);
    change_user(current, users, spaces, |ids, privileged| {
        ids.set_three([real, effective, saved], privileged)
    })?;
    Ok(0)
}

/// Implements `setresgid`.
fn setresgid(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, saved, ..] = arguments.map(|id| id as u32);
    change_group(current, |ids, privileged| {
        ids.set_three([real, effective, saved], privileged)
    })?;
    Ok(0)
}

/// Implements `setfsuid`: returns the previous id, whether or not the call changed it.
fn setfsuid(
    current: &Current<'_>,
    users: &Users,
    spaces: &Spaces,
    arguments: &Arguments,
) -> CallResult {
    let id = arguments[0] as u32;
    Ok(change_user(current, users, spaces, |ids, privileged| {
        Ok(ids.set_file(id, privileged))
    })?
    .into())
}

/// Implements `setfsgid`: returns the previous id, whether or not the call changed it.
fn setfsgid(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let id = arguments[0] as u32;
    Ok(change_group(current, |ids, privileged| Ok(ids.set_file(id, privileged)))?.into())
}

fn write_three(user: UserMemory<'_>, arguments: &Arguments, ids: Ids) -> CallResult {
    for (address, id) in arguments.iter().zip([ids.real, ids.effective, ids.saved]) {
        user.write_value(*address, &id)?;
    }
    Ok(0)
}

/// Implements `getresuid`.
fn getresuid(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let ids = current.process().identity.credentials.lock().user;
    write_three(current.user, arguments, ids)
}

/// Implements `getresgid`.
fn getresgid(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let ids = current.process().identity.credentials.lock().group;
    write_three(current.user, arguments, ids)
}

/// Number of groups that are copied to user memory at a time.
const TOGETHER: usize = 64;

/// Implements `getgroups`. With a size of 0, the call only returns the number of groups.
fn getgroups(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let size = arguments[0] as i32;
    let groups = current.process().identity.credentials.lock().groups.clone();
    if size < 0 || (size > 0 && (size as usize) < groups.len()) {
        return Err(Errno::EINVAL);
    }
    if size > 0 {
        let mut to = arguments[1];
        let mut bytes = [0; TOGETHER * 4];
        for part in groups.blocks().flat_map(|block| block.chunks(TOGETHER)) {
            let bytes = &mut bytes[..part.len() * 4];
            for (bytes, group) in bytes.chunks_exact_mut(4).zip(part) {
                group.to_bytes(bytes);
            }
            current.user.write_bytes(to, bytes)?;
            to = to.wrapping_add(bytes.len() as u64);
        }
    }
    Ok(groups.len() as u64)
}

/// Implements `setgroups`.
fn setgroups(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [count, list, ..] = *arguments;
    if !current
        .process()
        .identity
        .credentials
        .lock()
        .has(Capabilities::SET_GROUP)
    {
        return Err(Errno::EPERM);
    }
    if count > GROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut groups = Paged::new();
    let mut points = PausePoints::every(TOGETHER as u32);
    for index in 0..count {
        points.round();
        let group = current.user.read_value(list.wrapping_add(index * 4))?;
        groups.try_push(group).map_err(|_| Errno::ENOMEM)?;
    }
    let groups = Groups::sorted(groups).map_err(|_| Errno::ENOMEM)?;
    let old = {
        let mut credentials = current.process().identity.credentials.lock();
        mem::replace(&mut credentials.groups, groups)
    };
    drop(old);
    Ok(0)
}

abi_struct! {
    /// `struct __user_cap_header_struct` of `linux/capability.h`.
    pub struct CapabilityHeader {
        /// The version of the structure, for example `_LINUX_CAPABILITY_VERSION_3`.
        pub version: u32,
        /// Process id; 0 means the caller.
        pub process: i32,
    }
}

const VERSION_1: u32 = 0x1998_0330;
const VERSION_2: u32 = 0x2007_1026;
const VERSION_3: u32 = 0x2008_0522;

/// Reads the header. Returns the header, and the number of 32-bit words in each capability set of the header's version.
fn header(user: UserMemory<'_>, address: u64) -> Result<(CapabilityHeader, u64), Errno> {
    let header: CapabilityHeader = user.read_value(address)?;
    match header.version {
        VERSION_1 => Ok((header, 1)),
        VERSION_2 | VERSION_3 => Ok((header, WORDS)),
        _ => {
            user.write_value(address, &VERSION_3)?;
            Err(Errno::EINVAL)
        }
    }
}

/// Number of 32-bit words in each capability set since version 2.
const WORDS: u64 = 2;

/// Implements `capget`.
fn capget(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    let [address, data, ..] = *arguments;
    let (header, words) = match header(current.user, address) {
        // A call with a null data pointer only queries the version.
        Err(Errno::EINVAL) if data == 0 => return Ok(0),
        header => header?,
    };
    let process = match header.process {
        0 => current.process().clone(),
        id if id < 0 => return Err(Errno::EINVAL),
        id => tasks.process(id as u32).ok_or(Errno::ESRCH)?,
    };
    if data == 0 {
        return Ok(0);
    }
    let sets = process.identity.credentials.lock().capabilities;
    for index in 0..words {
        let word = |set: Capabilities| (set.bits() >> (32 * index)) as u32;
        let triple = [sets.effective, sets.permitted, sets.inheritable].map(word);
        current.user.write_value(data + index * 12, &triple)?;
    }
    Ok(0)
}

/// Implements `capset`. Only the calling process can be changed.
fn capset(current: &Current<'_>, spaces: &Spaces, arguments: &Arguments) -> CallResult {
    let [address, data, ..] = *arguments;
    let (header, words) = header(current.user, address)?;
    if header.process != 0 && header.process != current.process().id as i32 {
        return Err(Errno::EPERM);
    }
    let mut sets = [0; 3];
    for index in 0..words {
        let triple: [u32; 3] = current.user.read_value(data.wrapping_add(index * 12))?;
        for (set, word) in sets.iter_mut().zip(triple) {
            *set |= u64::from(word) << (32 * index);
        }
    }
    let [effective, permitted, inheritable] = sets.map(Capabilities::from_bits_retain);
    let process = current.process();
    let capabilities = {
        let mut credentials = process.identity.credentials.lock();
        let now = credentials.capabilities;
        credentials.capabilities.set(CapabilitySets {
            permitted,
            effective,
            inheritable,
            ..now
        })?;
        credentials.capabilities.effective
    };
    let limits = spaces.limits(&process.identity.limits.lock(), capabilities);
    current.with_space(|space| space.set_limits(limits));
    Ok(0)
}
