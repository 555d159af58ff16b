//! System calls on users, groups and capabilities.

use crate::{
    abi::Plain,
    abi_struct,
    context::{Arguments, CallResult, Context},
    errno::Errno,
    identity::{Capabilities, CapabilitySets, Credentials, GROUPS_MAX, Ids},
};
use alloc::{sync::Arc, vec::Vec};
use memwright_table::{OutOfMemory, TryPush};

fn read(context: &Context<'_>, get: impl FnOnce(&Credentials) -> u32) -> CallResult {
    Ok(get(&context.process().identity.credentials.lock()).into())
}

/// Implements `getuid`.
pub fn getuid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    read(context, |credentials| credentials.user.real)
}

/// Implements `geteuid`.
pub fn geteuid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    read(context, |credentials| credentials.user.effective)
}

/// Implements `getgid`.
pub fn getgid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    read(context, |credentials| credentials.group.real)
}

/// Implements `getegid`.
pub fn getegid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    read(context, |credentials| credentials.group.effective)
}

/// Changes the user ids. A process that stops being root loses its capabilities.
fn change_user<R>(
    context: &Context<'_>,
    change: impl FnOnce(&mut Ids, bool) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let process = context.process();
    let (before, result, real, capabilities) = {
        let mut credentials = process.identity.credentials.lock();
        let before = credentials.clone();
        let result = credentials.change_user(change)?;
        let capabilities = credentials.capabilities.effective;
        (before, result, credentials.user.real, capabilities)
    };
    if real != before.user.real {
        match context.kernel.users.get(real) {
            Ok(user) => process.change_user(user),
            // Linux returns this error as well if it has no memory for the new user's counts (`set_user`).
            Err(OutOfMemory) => {
                *process.identity.credentials.lock() = before;
                return Err(Errno::EAGAIN);
            }
        }
    }
    let limits = context
        .kernel
        .spaces
        .limits(&process.identity.limits.lock(), capabilities);
    context.with_space(|space| space.set_limits(limits));
    Ok(result)
}

fn change_group<R>(
    context: &Context<'_>,
    change: impl FnOnce(&mut Ids, bool) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut credentials = context.process().identity.credentials.lock();
    let privileged = credentials.has(Capabilities::SET_GROUP);
    change(&mut credentials.group, privileged)
}

/// Implements `setuid`.
pub fn setuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    change_user(context, |ids, privileged| {
        ids.set(arguments[0] as u32, privileged)
    })?;
    Ok(0)
}

/// Implements `setgid`.
pub fn setgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    change_group(context, |ids, privileged| {
        ids.set(arguments[0] as u32, privileged)
    })?;
    Ok(0)
}

/// Implements `setreuid`.
pub fn setreuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, ..] = arguments.map(|id| id as u32);
    change_user(context, |ids, privileged| {
        ids.set_two(real, effective, privileged)
    })?;
    Ok(0)
}

/// Implements `setregid`.
pub fn setregid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, ..] = arguments.map(|id| id as u32);
    change_group(context, |ids, privileged| {
        ids.set_two(real, effective, privileged)
    })?;
    Ok(0)
}

/// Implements `setresuid`.
pub fn setresuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, saved, ..] = arguments.map(|id| id as u32);
    change_user(context, |ids, privileged| {
        ids.set_three([real, effective, saved], privileged)
    })?;
    Ok(0)
}

/// Implements `setresgid`.
pub fn setresgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, saved, ..] = arguments.map(|id| id as u32);
    change_group(context, |ids, privileged| {
        ids.set_three([real, effective, saved], privileged)
    })?;
    Ok(0)
}

/// Implements `setfsuid`: returns the previous id, whether or not it was changed.
pub fn setfsuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let id = arguments[0] as u32;
    Ok(change_user(context, |ids, privileged| Ok(ids.set_file(id, privileged)))?.into())
}

/// Implements `setfsgid`: returns the previous id, whether or not it was changed.
pub fn setfsgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let id = arguments[0] as u32;
    Ok(change_group(context, |ids, privileged| Ok(ids.set_file(id, privileged)))?.into())
}

fn write_three(context: &Context<'_>, arguments: &Arguments, ids: Ids) -> CallResult {
    for (address, id) in arguments.iter().zip([ids.real, ids.effective, ids.saved]) {
        context.user.write_value(*address, &id)?;
    }
    Ok(0)
}

/// Implements `getresuid`.
pub fn getresuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let ids = context.process().identity.credentials.lock().user;
    write_three(context, arguments, ids)
}

/// Implements `getresgid`.
pub fn getresgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let ids = context.process().identity.credentials.lock().group;
    write_three(context, arguments, ids)
}

/// Number of groups that are copied to user memory at a time.
const TOGETHER: usize = 64;

/// Implements `getgroups`. With a size of 0 the call only returns the number of groups.
pub fn getgroups(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let size = arguments[0] as i32;
    let groups = context.process().identity.credentials.lock().groups.clone();
    let groups = groups.as_ref().map_or(&[][..], |groups| groups.as_slice());
    if size < 0 || (size > 0 && (size as usize) < groups.len()) {
        return Err(Errno::EINVAL);
    }
    if size > 0 {
        let mut to = arguments[1];
        let mut bytes = [0; TOGETHER * 4];
        for part in groups.chunks(TOGETHER) {
            let bytes = &mut bytes[..part.len() * 4];
            for (bytes, group) in bytes.chunks_exact_mut(4).zip(part) {
                group.to_bytes(bytes);
            }
            context.user.write_bytes(to, bytes)?;
            to = to.wrapping_add(bytes.len() as u64);
        }
    }
    Ok(groups.len() as u64)
}

/// Implements `setgroups`.
pub fn setgroups(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [count, list, ..] = *arguments;
    if !context
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
    let mut groups = Vec::new();
    let room = groups.try_make_room(count as usize);
    room.map_err(|_| Errno::ENOMEM)?;
    for index in 0..count {
        let group = context.user.read_value(list.wrapping_add(index * 4))?;
        groups.try_push(group).map_err(|_| Errno::ENOMEM)?;
    }
    let groups = Arc::new(groups);
    let old = {
        let mut credentials = context.process().identity.credentials.lock();
        credentials.groups.replace(groups)
    };
    drop(old);
    Ok(0)
}

abi_struct! {
    /// `struct __user_cap_header_struct` of `linux/capability.h`.
    pub struct CapabilityHeader {
        /// `_LINUX_CAPABILITY_VERSION_3`.
        pub version: u32,
        /// Process id; 0 for the caller.
        pub process: i32,
    }
}

const VERSION_1: u32 = 0x1998_0330;
const VERSION_2: u32 = 0x2007_1026;
const VERSION_3: u32 = 0x2008_0522;

/// Returns the header and the number of words in each set of its version.
fn header(context: &Context<'_>, address: u64) -> Result<(CapabilityHeader, u64), Errno> {
    let header: CapabilityHeader = context.user.read_value(address)?;
    match header.version {
        VERSION_1 => Ok((header, 1)),
        VERSION_2 | VERSION_3 => Ok((header, WORDS)),
        _ => {
            context.user.write_value(address, &VERSION_3)?;
            Err(Errno::EINVAL)
        }
    }
}

/// Number of words into which the calls split each set.
const WORDS: u64 = 2;

/// Implements `capget`.
pub fn capget(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, data, ..] = *arguments;
    let (header, words) = match header(context, address) {
        // A null data pointer only queries the version.
        Err(Errno::EINVAL) if data == 0 => return Ok(0),
        header => header?,
    };
    let process = match header.process {
        0 => context.process().clone(),
        id if id < 0 => return Err(Errno::EINVAL),
        id => context
            .kernel
            .tasks
            .process(id as u32)
            .ok_or(Errno::ESRCH)?,
    };
    if data == 0 {
        return Ok(0);
    }
    let sets = process.identity.credentials.lock().capabilities;
    for index in 0..words {
        let word = |set: Capabilities| (set.bits() >> (32 * index)) as u32;
        let triple = [sets.effective, sets.permitted, sets.inheritable].map(word);
        context.user.write_value(data + index * 12, &triple)?;
    }
    Ok(0)
}

/// Implements `capset`, for the calling process only.
pub fn capset(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, data, ..] = *arguments;
    let (header, words) = header(context, address)?;
    if header.process != 0 && header.process != context.process().id as i32 {
        return Err(Errno::EPERM);
    }
    let mut sets = [0; 3];
    for index in 0..words {
        let triple: [u32; 3] = context.user.read_value(data.wrapping_add(index * 12))?;
        for (set, word) in sets.iter_mut().zip(triple) {
            *set |= u64::from(word) << (32 * index);
        }
    }
    let [effective, permitted, inheritable] = sets.map(Capabilities::from_bits_retain);
    let process = context.process();
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
    let limits = context
        .kernel
        .spaces
        .limits(&process.identity.limits.lock(), capabilities);
    context.with_space(|space| space.set_limits(limits));
    Ok(0)
}
