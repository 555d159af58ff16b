//! Users, groups and capabilities: every process is root's and stays so.

use super::{Arguments, CallResult, int};
use crate::{abi_struct, context::Context, errno::Errno};

/// `getuid`, `geteuid`, `getgid`, `getegid`.
pub fn zero(_context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Ok(0)
}

/// An id that leaves things as they are: root's, or "no change".
fn unchanged(id: u64) -> bool {
    matches!(int(id), 0 | -1)
}

/// `setuid`, `setgid`: only to root. Anything else is refused, as there is nobody else.
pub fn set_id(_context: &Context<'_>, arguments: &Arguments) -> CallResult {
    match int(arguments[0]) {
        0 => Ok(0),
        -1 => Err(Errno::EINVAL),
        _ => Err(Errno::EPERM),
    }
}

/// `setreuid`, `setregid`.
pub fn set_two_ids(_context: &Context<'_>, arguments: &Arguments) -> CallResult {
    if arguments[..2].iter().all(|id| unchanged(*id)) {
        Ok(0)
    } else {
        Err(Errno::EPERM)
    }
}

/// `setresuid`, `setresgid`.
pub fn set_three_ids(_context: &Context<'_>, arguments: &Arguments) -> CallResult {
    if arguments[..3].iter().all(|id| unchanged(*id)) {
        Ok(0)
    } else {
        Err(Errno::EPERM)
    }
}

/// `setfsuid`, `setfsgid`: return the old id, whether or not it changed.
pub fn set_file_id(_context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Ok(0)
}

/// `getresuid`, `getresgid`.
pub fn get_three_ids(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    for address in &arguments[..3] {
        context.write_value(*address, &0u32)?;
    }
    Ok(0)
}

/// `getgroups`: root has no supplementary groups.
pub fn getgroups(_context: &Context<'_>, arguments: &Arguments) -> CallResult {
    if int(arguments[0]) < 0 {
        Err(Errno::EINVAL)
    } else {
        Ok(0)
    }
}

/// `setgroups`: only to none.
pub fn setgroups(_context: &Context<'_>, arguments: &Arguments) -> CallResult {
    if arguments[0] == 0 {
        Ok(0)
    } else {
        Err(Errno::EPERM)
    }
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

/// The number of word triples for a version, or the answer to an unknown one.
fn words(context: &Context<'_>, address: u64) -> Result<usize, Errno> {
    let header: CapabilityHeader = context.read_value(address)?;
    match header.version {
        VERSION_1 => Ok(1),
        VERSION_2 | VERSION_3 => Ok(2),
        _ => {
            context.write_value(address, &VERSION_3)?;
            Err(Errno::EINVAL)
        }
    }
}

/// `capget`: effective and permitted are full, inheritable is empty.
pub fn capget(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [header, data, ..] = *arguments;
    let words = match words(context, header) {
        // A null data pointer asks for the version only.
        Err(Errno::EINVAL) if data == 0 => return Ok(0),
        words => words?,
    };
    if data == 0 {
        return Ok(0);
    }
    for (index, word) in ALL.iter().take(words).enumerate() {
        context.write_value(data + index as u64 * 12, &[*word, *word, 0u32])?;
    }
    Ok(0)
}

/// `capset`: only to what it is.
pub fn capset(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [header, data, ..] = *arguments;
    let words = words(context, header)?;
    for (index, word) in ALL.iter().take(words).enumerate() {
        let [effective, permitted, inheritable]: [u32; 3] =
            context.read_value(data.wrapping_add(index as u64 * 12))?;
        if effective & word != *word || permitted & word != *word || inheritable != 0 {
            return Err(Errno::EPERM);
        }
    }
    Ok(0)
}
