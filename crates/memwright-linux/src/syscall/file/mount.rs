//! `mount` and `umount2`.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, real},
};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_tasks::process::Process;
use memwright_linux_vfs::{
    fs::{
        hugetlbfs::{Hugetlbfs, HugetlbfsOptions},
        mounted::{Files, Mounted},
        permission::Owner,
        socket::Registry,
        tmpfs::{MountFlags, Tmpfs, TmpfsOptions},
    },
    identity::Capabilities,
    user::UserMemory,
};
use memwright_table::{PAGE_SIZE, TryPush};

const MOUNT_FLAGS: &[(u64, &str)] = &[
    (raw::MS_RDONLY as u64, "MS_RDONLY"),
    (raw::MS_NOSUID as u64, "MS_NOSUID"),
    (raw::MS_NODEV as u64, "MS_NODEV"),
    (raw::MS_NOEXEC as u64, "MS_NOEXEC"),
    (raw::MS_REMOUNT as u64, "MS_REMOUNT"),
    (raw::MS_NOATIME as u64, "MS_NOATIME"),
    (raw::MS_NODIRATIME as u64, "MS_NODIRATIME"),
    (raw::MS_BIND as u64, "MS_BIND"),
    (raw::MS_MOVE as u64, "MS_MOVE"),
    (raw::MS_REC as u64, "MS_REC"),
    (raw::MS_SILENT as u64, "MS_SILENT"),
    (raw::MS_PRIVATE as u64, "MS_PRIVATE"),
    (raw::MS_RELATIME as u64, "MS_RELATIME"),
    (raw::MS_STRICTATIME as u64, "MS_STRICTATIME"),
];

/// Flags of `umount2` (`include/linux/fs.h`).
mod unmount {
    pub const FORCE: u32 = 1;
    pub const DETACH: u32 = 2;
    pub const EXPIRE: u32 = 4;
    pub const NO_FOLLOW: u32 = 8;
}

const UNMOUNT_FLAGS: &[(u64, &str)] = &[
    (unmount::FORCE as u64, "MNT_FORCE"),
    (unmount::DETACH as u64, "MNT_DETACH"),
    (unmount::EXPIRE as u64, "MNT_EXPIRE"),
    (unmount::NO_FOLLOW as u64, "UMOUNT_NOFOLLOW"),
];

/// The entries of this module in the system-call table. All arguments of `mount` except the path may be null.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_mount,
        "mount",
        &[
            Kind::Hex,
            Kind::Path,
            Kind::Hex,
            Kind::Flags(MOUNT_FLAGS),
            Kind::Hex,
        ],
        handler!(mount, memory),
    ),
    real(
        raw::__NR_umount2,
        "umount2",
        &[Kind::Path, Kind::Flags(UNMOUNT_FLAGS)],
        handler!(umount2, sockets),
    ),
];

fn may(process: &Process) -> Result<(), Errno> {
    let credentials = process.identity.credentials.lock();
    if credentials.has(Capabilities::ADMINISTER) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// Reads an optional string of at most one page (Linux 7.2 `fs/namespace.c`, `copy_mount_string`).
fn string(user: UserMemory<'_>, address: u64) -> Result<Option<Vec<u8>>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let read = user.read_string(address, PAGE_SIZE, Errno::EINVAL);
    read.map(Some)
}

/// Reads mount options: a string that ends at a NUL or, without one, after one page (`copy_mount_options`).
fn options(user: UserMemory<'_>, address: u64) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    if address == 0 {
        return Ok(text);
    }
    text.try_fill(PAGE_SIZE, 0)?;
    // Only the part of the options in the first page must be readable. The part in the next page may be unreadable.
    let first = PAGE_SIZE - address as usize % PAGE_SIZE;
    user.read_bytes(address, &mut text[..first])?;
    let after = address.checked_add(first as u64).ok_or(Errno::EFAULT)?;
    if user.read_bytes(after, &mut text[first..]).is_err() {
        text[first..].fill(0);
    }
    text[PAGE_SIZE - 1] = 0;
    let end = text.iter().position(|byte| *byte == 0);
    text.truncate(end.unwrap_or(PAGE_SIZE));
    Ok(text)
}

/// Removes the magic number that old programs set in the upper half of the flags.
const fn without_magic(flags: u32) -> u32 {
    const MAGIC: u32 = 0xc0ed_0000;
    const MASK: u32 = 0xffff_0000;
    if flags & MASK == MAGIC {
        flags & !MASK
    } else {
        flags
    }
}

/// Parses the options `text` of a file system of type `kind`, and creates the state of the file system.
///
/// # Errors
/// `EINVAL` for a missing type and for invalid options; `ENODEV` for a type that programs cannot mount; `ENOMEM`.
fn files(
    memory: &Arc<Memory>,
    owner: Owner,
    kind: Option<&[u8]>,
    text: &[u8],
) -> Result<Files, Errno> {
    match kind {
        None => Err(Errno::EINVAL),
        Some(b"tmpfs") => {
            let options = TmpfsOptions::parse(memory.frames().total(), owner, text)?;
            Ok(Files::Tmpfs(Tmpfs::new(memory, options)))
        }
        Some(b"hugetlbfs") => {
            let pool = memory.frames().pool();
            let options = HugetlbfsOptions::parse(pool.total - pool.surplus, owner, text)?;
            Ok(Files::Hugetlbfs(Hugetlbfs::new(memory, options)?))
        }
        Some(_) => Err(Errno::ENODEV),
    }
}

/// Implements `mount`: mounts a new tmpfs or hugetlbfs, or changes the options of a mounted one.
fn mount(current: &Current<'_>, memory: &Arc<Memory>, arguments: &Arguments) -> CallResult {
    let &[source, path, kind, flags, data, _] = arguments;
    current.check_heap()?;
    let kind = string(current.user, kind)?;
    let source = string(current.user, source)?;
    let text = options(current.user, data)?;
    let at = current.caller().resolve_at(raw::AT_FDCWD, path, 0)?;
    may(current.process())?;
    let flags = without_magic(flags as u32);
    let mounts = &current.vfs().mounts;
    if flags & raw::MS_REMOUNT != 0 {
        let decode = |before| MountFlags::decode(flags & !raw::MS_REMOUNT, Some(before));
        mounts.remount(&at, &text, decode)?;
        mounts.changes.note();
        return Ok(0);
    }
    let flags = MountFlags::decode(flags, None)?;
    let owner = current.caller().subject().owner();
    let files = files(memory, owner, kind.as_deref(), &text)?;
    let source = source.filter(|source| !source.is_empty());
    let source = source.unwrap_or_else(|| b"none".to_vec());
    let now = current.vfs().now();
    mounts.mount_files(&at, Mounted::new(files, flags, source), now)?;
    mounts.changes.note();
    Ok(0)
}

/// Implements `umount2`. `MNT_EXPIRE` is rejected, because mounts do not expire.
fn umount2(current: &Current<'_>, sockets: &Registry, arguments: &Arguments) -> CallResult {
    let &[path, flags, ..] = arguments;
    let flags = flags as u32;
    if flags & !(unmount::FORCE | unmount::DETACH | unmount::NO_FOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let follow = if flags & unmount::NO_FOLLOW != 0 {
        raw::AT_SYMLINK_NOFOLLOW
    } else {
        0
    };
    let root = current.caller().resolve_at(raw::AT_FDCWD, path, follow)?;
    may(current.process())?;
    let mounts = &current.vfs().mounts;
    let unmounted = if flags & unmount::DETACH != 0 {
        mounts.detach(sockets, root)
    } else {
        mounts.unmount(sockets, root)
    };
    unmounted?;
    mounts.changes.note();
    Ok(0)
}
