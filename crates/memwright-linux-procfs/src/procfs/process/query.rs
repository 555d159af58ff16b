//! `PROCMAP_QUERY`: returns the line of one area in `/proc/PID/maps`, in binary form.

use crate::procfs::{node::Subject, process::maps::Noted};
use alloc::string::String;
use core::fmt::Write;
use memwright::Rights;
use memwright_linux_abi::{abi::Plain, abi_struct, errno::Errno};
use memwright_linux_vfs::user::UserMemory;
use memwright_table::VirtAddr;

/// The number of the command (`linux/fs.h`).
const PROCMAP_QUERY: u32 = 0xc068_6611;

/// The bits of `query_flags` and `vma_flags` (`linux/fs.h`).
mod flag {
    pub const READABLE: u64 = 1;
    pub const WRITABLE: u64 = 2;
    pub const EXECUTABLE: u64 = 4;
    pub const SHARED: u64 = 8;
    pub const COVERING_OR_NEXT: u64 = 0x10;
    pub const FILE: u64 = 0x20;
    pub const ALL: u64 = 0x3f;
}

abi_struct! {
    /// `struct procmap_query` of `linux/fs.h`.
    pub struct Query {
        /// In: the size in bytes of the program's version of the structure.
        pub size: u64,
        /// In: conditions that the area must meet.
        pub query_flags: u64,
        /// In: the address to look up.
        pub query_address: u64,
        /// Start address of the area.
        pub start: u64,
        /// End address of the area, exclusive.
        pub end: u64,
        /// Access rights and sharing of the area.
        pub flags: u64,
        /// Page size in bytes.
        pub page_size: u64,
        /// Offset in the file, in bytes.
        pub offset: u64,
        /// Inode of the file.
        pub inode: u64,
        /// Major number of the file's device.
        pub major: u32,
        /// Minor number of the file's device.
        pub minor: u32,
        /// In: the size of the name buffer. Out: the length of the name.
        pub name_size: u32,
        /// In: the size of the build ID buffer. Out: the length of the build ID.
        pub build_id_size: u32,
        /// Address of the name buffer.
        pub name_address: u64,
        /// Address of the build ID buffer.
        pub build_id_address: u64,
    }
}

/// The minimum size of the structure in bytes. It contains the fields up to and including `query_address`.
const LEAST: u64 = 24;

/// Handles an `ioctl` of `/proc/PID/maps` (`do_procmap_query` in `fs/proc/task_mmu.c` of Linux 7.2).
///
/// # Errors
/// `ENOTTY` for another command; `EINVAL`, `E2BIG` or `EFAULT` for invalid arguments; `ESRCH` if the process has no
/// memory; `ENOENT` if no area matches; `ENAMETOOLONG` if the name does not fit.
pub fn control(
    user: UserMemory<'static>,
    subject: &Subject,
    command: u32,
    argument: u64,
) -> Result<u64, Errno> {
    if command != PROCMAP_QUERY {
        return Err(Errno::ENOTTY);
    }
    let mut query = read(user, argument)?;
    if query.query_flags & !flag::ALL != 0
        || (query.name_size == 0) != (query.name_address == 0)
        || (query.build_id_size == 0) != (query.build_id_address == 0)
    {
        return Err(Errno::EINVAL);
    }
    let found = find(subject, &query)?.ok_or(Errno::ENOENT)?;
    let line = found.line();
    query.start = line.start;
    query.end = line.end;
    query.flags = rights(line.rights) | if line.shared { flag::SHARED } else { 0 };
    query.page_size = 4096;
    query.offset = line.offset;
    query.inode = line.inode;
    (query.major, query.minor) = line.device_numbers();
    // Build IDs of executables are not supported.
    query.build_id_size = 0;
    if query.name_size > 0 {
        query.name_size = write_name(user, &found, &query)?;
    }
    let mut bytes = [0; Query::SIZE];
    query.to_bytes(&mut bytes);
    let known = query.size.min(Query::SIZE as u64) as usize;
    user.write_bytes(argument, &bytes[..known])?;
    Ok(0)
}

/// Reads the fields that the program's version of the structure contains. Fields that it lacks are 0. Bytes beyond the
/// kernel's version of the structure must be 0.
fn read(user: UserMemory<'static>, address: u64) -> Result<Query, Errno> {
    let size: u64 = user.read_value(address)?;
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    if size < LEAST {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; Query::SIZE];
    let known = size.min(Query::SIZE as u64);
    user.read_bytes(address, &mut bytes[..known as usize])?;
    for more in known..size {
        let byte: u8 = user.read_value(address + more)?;
        if byte != 0 {
            return Err(Errno::E2BIG);
        }
    }
    Ok(Query::from_bytes(&bytes))
}

fn rights(rights: Rights) -> u64 {
    [
        (Rights::READ, flag::READABLE),
        (Rights::WRITE, flag::WRITABLE),
        (Rights::EXECUTE, flag::EXECUTABLE),
    ]
    .into_iter()
    .filter(|(right, _)| rights.contains(*right))
    .fold(0, |bits, (_, bit)| bits | bit)
}

/// Returns the area that contains the queried address and meets the conditions. If there is no such area and the query
/// allows it, returns the next area that meets the conditions. Otherwise, returns `None`.
fn find(subject: &Subject, query: &Query) -> Result<Option<Noted>, Errno> {
    let space = subject.process.space().ok_or(Errno::ESRCH)?;
    let wanted = query.query_flags;
    let mut address = query.query_address;
    loop {
        let next = space.find(VirtAddr::new(address), |area| {
            let shared = if area.is_shared() { flag::SHARED } else { 0 };
            let file = if area.object().is_some() {
                flag::FILE
            } else {
                0
            };
            let has = rights(area.rights()) | shared | file;
            (Noted::of(area), has)
        });
        let Some((noted, has)) = next else {
            return Ok(None);
        };
        let contains = noted.line().start <= query.query_address;
        if !contains && wanted & flag::COVERING_OR_NEXT == 0 {
            return Ok(None);
        }
        if wanted & !flag::COVERING_OR_NEXT & !has == 0 {
            return Ok(Some(noted));
        }
        if wanted & flag::COVERING_OR_NEXT == 0 {
            return Ok(None);
        }
        address = noted.line().end;
    }
}

/// Writes the name of the area with a NUL to the program's buffer. Returns the size in bytes including the NUL, or 0 if
/// the area has no name.
fn write_name(user: UserMemory<'static>, found: &Noted, query: &Query) -> Result<u32, Errno> {
    if !found.has_name() {
        return Ok(0);
    }
    let mut name = String::new();
    let written = found
        .write_name(&mut name)
        .and_then(|()| name.write_char('\0'));
    written.map_err(|_| Errno::ENOMEM)?;
    if name.len() > query.name_size as usize {
        return Err(Errno::ENAMETOOLONG);
    }
    user.write_bytes(query.name_address, name.as_bytes())?;
    Ok(name.len() as u32)
}

const _: () = assert!(Query::SIZE == 104);
