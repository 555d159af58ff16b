//! Users, groups and capabilities.

use super::{Arguments, CallResult};
use crate::{
    abi_struct,
    context::Context,
    errno::Errno,
    memory::space_limits,
    process::{Credentials, Ids},
};
use alloc::vec::Vec;

/// Most supplementary groups (`NGROUPS_MAX`).
const GROUPS_MAX: u64 = 65_536;

fn read(context: &Context<'_>, get: impl FnOnce(&Credentials) -> u32) -> CallResult {
    Ok(get(&context.process().credentials.lock()).into())
}

/// `getuid`.
pub fn getuid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    read(context, |credentials| credentials.user.real)
}

/// `geteuid`.
pub fn geteuid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    read(context, |credentials| credentials.user.effective)
}

/// `getgid`.
pub fn getgid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    read(context, |credentials| credentials.group.real)
}

/// `getegid`.
pub fn getegid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    read(context, |credentials| credentials.group.effective)
}

/// Changes the user ids; whoever stops being root may no longer lock any memory.
fn change_user<R>(
    context: &Context<'_>,
    change: impl FnOnce(&mut Ids, bool) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let process = context.process();
    let (result, privileged) = {
        let mut credentials = process.credentials.lock();
        let privileged = credentials.privileged();
        let result = change(&mut credentials.user, privileged)?;
        (result, credentials.privileged())
    };
    let limits = space_limits(&process.limits.lock(), privileged);
    context.with_space(|space| space.set_limits(limits));
    Ok(result)
}

fn change_group<R>(
    context: &Context<'_>,
    change: impl FnOnce(&mut Ids, bool) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut credentials = context.process().credentials.lock();
    let privileged = credentials.privileged();
    change(&mut credentials.group, privileged)
}

/// `setuid`.
pub fn setuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    change_user(context, |ids, privileged| {
        ids.set(arguments[0] as u32, privileged)
    })?;
    Ok(0)
}

/// `setgid`.
pub fn setgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    change_group(context, |ids, privileged| {
        ids.set(arguments[0] as u32, privileged)
    })?;
    Ok(0)
}

/// `setreuid`.
pub fn setreuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, ..] = arguments.map(|id| id as u32);
    change_user(context, |ids, privileged| {
        ids.set_two(real, effective, privileged)
    })?;
    Ok(0)
}

/// `setregid`.
pub fn setregid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, ..] = arguments.map(|id| id as u32);
    change_group(context, |ids, privileged| {
        ids.set_two(real, effective, privileged)
    })?;
    Ok(0)
}

/// `setresuid`.
pub fn setresuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, saved, ..] = arguments.map(|id| id as u32);
    change_user(context, |ids, privileged| {
        ids.set_three([real, effective, saved], privileged)
    })?;
    Ok(0)
}

/// `setresgid`.
pub fn setresgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [real, effective, saved, ..] = arguments.map(|id| id as u32);
    change_group(context, |ids, privileged| {
        ids.set_three([real, effective, saved], privileged)
    })?;
    Ok(0)
}

/// `setfsuid`: returns the id before, whether or not it changed.
pub fn setfsuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let id = arguments[0] as u32;
    Ok(change_user(context, |ids, privileged| Ok(ids.set_file(id, privileged)))?.into())
}

/// `setfsgid`.
pub fn setfsgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let id = arguments[0] as u32;
    Ok(change_group(context, |ids, privileged| Ok(ids.set_file(id, privileged)))?.into())
}

fn write_three(context: &Context<'_>, arguments: &Arguments, ids: Ids) -> CallResult {
    for (address, id) in arguments.iter().zip([ids.real, ids.effective, ids.saved]) {
        context.write_value(*address, &id)?;
    }
    Ok(0)
}

/// `getresuid`.
pub fn getresuid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let ids = context.process().credentials.lock().user;
    write_three(context, arguments, ids)
}

/// `getresgid`.
pub fn getresgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let ids = context.process().credentials.lock().group;
    write_three(context, arguments, ids)
}

/// `getgroups`: size 0 asks for their number.
pub fn getgroups(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let size = arguments[0] as i32;
    let groups = context.process().credentials.lock().groups.clone();
    if size < 0 || (size > 0 && (size as usize) < groups.len()) {
        return Err(Errno::EINVAL);
    }
    if size > 0 {
        let bytes: Vec<u8> = groups
            .iter()
            .flat_map(|group| group.to_le_bytes())
            .collect();
        context.write_bytes(arguments[1], &bytes)?;
    }
    Ok(groups.len() as u64)
}

/// `setgroups`.
pub fn setgroups(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [count, list, ..] = *arguments;
    if !context.process().credentials.lock().privileged() {
        return Err(Errno::EPERM);
    }
    if count > GROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut groups = Vec::new();
    groups
        .try_reserve_exact(count as usize)
        .map_err(|_| Errno::ENOMEM)?;
    for index in 0..count {
        groups.push(context.read_value(list.wrapping_add(index * 4))?);
    }
    context.process().credentials.lock().groups = groups;
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

/// The capabilities of root: bits 0 to 40, in two words.
const ALL: [u32; 2] = [!0, 0x1ff];

/// The header, and the number of word triples for its version.
fn header(context: &Context<'_>, address: u64) -> Result<(CapabilityHeader, usize), Errno> {
    let header: CapabilityHeader = context.read_value(address)?;
    match header.version {
        VERSION_1 => Ok((header, 1)),
        VERSION_2 | VERSION_3 => Ok((header, 2)),
        _ => {
            context.write_value(address, &VERSION_3)?;
            Err(Errno::EINVAL)
        }
    }
}

fn capabilities(credentials: &Credentials) -> [u32; 2] {
    if credentials.privileged() {
        ALL
    } else {
        [0, 0]
    }
}

/// `capget`: effective and permitted are full for root, inheritable is empty.
pub fn capget(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, data, ..] = *arguments;
    let (header, words) = match header(context, address) {
        // A null data pointer asks for the version only.
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
    let have = capabilities(&process.credentials.lock());
    for (index, word) in have.iter().take(words).enumerate() {
        context.write_value(data + index as u64 * 12, &[*word, *word, 0u32])?;
    }
    Ok(0)
}

/// `capset`: only to what it is; single capabilities cannot be given up.
pub fn capset(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, data, ..] = *arguments;
    let (header, words) = header(context, address)?;
    if header.process != 0 && header.process != context.process().id as i32 {
        return Err(Errno::EPERM);
    }
    let have = capabilities(&context.process().credentials.lock());
    for (index, word) in have.iter().take(words).enumerate() {
        let [effective, permitted, inheritable]: [u32; 3] =
            context.read_value(data.wrapping_add(index as u64 * 12))?;
        let known = ALL[index];
        if effective & known != *word || permitted & known != *word || inheritable != 0 {
            return Err(Errno::EPERM);
        }
    }
    Ok(0)
}
