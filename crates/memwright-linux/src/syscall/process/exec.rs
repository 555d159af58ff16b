//! `execve`.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    exec::{Programs, Request, STRING_MAX, Strings, strings_limit, strings_room},
    thread_registers::ThreadRegisters,
};
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::{identity::Resource, user::UserMemory};

/// Returns the number of strings in a NULL-terminated array of pointers, at most `most`. Like on Linux, a null array
/// pointer means an empty array.
fn count_strings(user: UserMemory<'_>, address: u64, most: u64) -> Result<u64, Errno> {
    let mut count = 0;
    while address != 0 && string_at(user, address, count)? != 0 {
        count += 1;
        if count > most {
            return Err(Errno::E2BIG);
        }
    }
    Ok(count)
}

/// Reads the pointer at index `index` of an array of string pointers.
fn string_at(user: UserMemory<'_>, array: u64, index: u64) -> Result<u64, Errno> {
    let at = array.checked_add(index * 8).ok_or(Errno::EFAULT)?;
    user.read_value(at)
}

/// Reads the first `count` strings of an array. `room` is the number of bytes that the strings are allowed to occupy.
/// Subtracts the size of the strings from `room`.
fn read_strings(
    user: UserMemory<'_>,
    array: u64,
    count: u64,
    room: &mut u64,
) -> Result<Strings, Errno> {
    let mut strings = Strings::new();
    for index in 0..count {
        // The pointer is null if another thread has shortened the array since the strings were counted.
        let pointer = string_at(user, array, index)?;
        let length = read_string(user, pointer, *room, &mut strings)?;
        *room -= length as u64 + 1;
    }
    Ok(strings)
}

/// Appends the string at `from` to `strings`, if the string and its NUL fit in `room` bytes. Returns its length in
/// bytes.
fn read_string(
    user: UserMemory<'_>,
    from: u64,
    room: u64,
    strings: &mut Strings,
) -> Result<usize, Errno> {
    let limit = STRING_MAX.min(usize::try_from(room).unwrap_or(STRING_MAX));
    let length = user.each_string_part(from, limit, Errno::E2BIG, |part| {
        strings.push_part(part).map_err(|_| Errno::ENOMEM)
    })?;
    strings.end(length).map_err(|_| Errno::ENOMEM)?;
    Ok(length)
}

/// Implements `execve`.
pub(crate) fn execve(
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
    programs: &Programs,
    arguments: &Arguments,
) -> CallResult {
    let [path, argument_array, environment_array, ..] = *arguments;
    let user = current.user;
    let path = user.read_path(path)?;
    let start = current.fs().directory();
    let stack = current.process().identity.soft_limit(Resource::Stack);
    let most = strings_limit(stack) / 8;
    let argument_count = count_strings(user, argument_array, most)?;
    let environment_count = count_strings(user, environment_array, most)?;
    let room = strings_room(stack, [argument_count, environment_count])?;
    let mut room = room
        .checked_sub(path.len() as u64 + 1)
        .ok_or(Errno::E2BIG)?;
    // Read the environment before the arguments, like Linux does: the order determines which error is returned.
    let environment = read_strings(user, environment_array, environment_count, &mut room)?;
    let arguments = read_strings(user, argument_array, argument_count, &mut room)?;
    let request = Request {
        path,
        start,
        arguments,
        environment,
    };
    programs
        .execute(current, registers, request)
        .map_err(|error| error.errno)?;
    Ok(0)
}
