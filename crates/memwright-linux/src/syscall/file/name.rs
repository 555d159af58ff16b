//! System calls that create, remove and rename files.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::{Kind, SystemCall, handler, int, real},
};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_memory::cgroup::Cgroups;
use memwright_linux_procfs::procfs::{ProcEntry, ProcNode};
use memwright_linux_vfs::fs::{
    attributes::DeviceNumber,
    device::Device,
    inode::{Body, Inode},
    permission::Permission,
    pipe::Pipe,
    tree::{Removal, RenameMode, RenameSide},
    walk::{LastLink, Walked},
};

use Kind::{DirFd, Flags, Hex, Mode, OutBuffer, Path, Unsigned};

const UNLINK_FLAGS: &[(u64, &str)] = &[(raw::AT_REMOVEDIR as u64, "AT_REMOVEDIR")];
const RENAME_FLAGS: &[(u64, &str)] = &[
    (raw::RENAME_NOREPLACE as u64, "RENAME_NOREPLACE"),
    (raw::RENAME_EXCHANGE as u64, "RENAME_EXCHANGE"),
    (raw::RENAME_WHITEOUT as u64, "RENAME_WHITEOUT"),
];

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_mkdir,
        "mkdir",
        &[Path, Mode],
        handler!(mkdir, cgroups),
    ),
    real(
        raw::__NR_mkdirat,
        "mkdirat",
        &[DirFd, Path, Mode],
        handler!(mkdirat, cgroups),
    ),
    real(
        raw::__NR_mknod,
        "mknod",
        &[Path, Mode, Hex],
        handler!(mknod, memory),
    ),
    real(
        raw::__NR_mknodat,
        "mknodat",
        &[DirFd, Path, Mode, Hex],
        handler!(mknodat, memory),
    ),
    real(raw::__NR_rmdir, "rmdir", &[Path], handler!(rmdir, cgroups)),
    real(
        raw::__NR_unlink,
        "unlink",
        &[Path],
        handler!(unlink, cgroups),
    ),
    real(
        raw::__NR_unlinkat,
        "unlinkat",
        &[DirFd, Path, Flags(UNLINK_FLAGS)],
        handler!(unlinkat, cgroups),
    ),
    real(raw::__NR_rename, "rename", &[Path, Path], handler!(rename)),
    real(
        raw::__NR_renameat,
        "renameat",
        &[DirFd, Path, DirFd, Path],
        handler!(renameat),
    ),
    real(
        raw::__NR_renameat2,
        "renameat2",
        &[DirFd, Path, DirFd, Path, Flags(RENAME_FLAGS)],
        handler!(renameat2),
    ),
    real(raw::__NR_link, "link", &[Path, Path], handler!(link)),
    real(
        raw::__NR_linkat,
        "linkat",
        &[DirFd, Path, DirFd, Path, Flags(super::status::AT_FLAGS)],
        handler!(linkat),
    ),
    real(
        raw::__NR_symlink,
        "symlink",
        &[Path, Path],
        handler!(symlink),
    ),
    real(
        raw::__NR_symlinkat,
        "symlinkat",
        &[Path, DirFd, Path],
        handler!(symlinkat),
    ),
    real(
        raw::__NR_readlink,
        "readlink",
        &[Path, OutBuffer(2), Unsigned],
        handler!(readlink),
    ),
    real(
        raw::__NR_readlinkat,
        "readlinkat",
        &[DirFd, Path, OutBuffer(3), Unsigned],
        handler!(readlinkat),
    ),
];

const HERE: u64 = raw::AT_FDCWD as u64;

/// Resolves the path of a file that is to be created. The path must not exist.
fn walk_new(
    current: &Current<'_>,
    directory: u64,
    path: u64,
    is_directory: bool,
) -> Result<Walked, Errno> {
    current.check_heap()?;
    let walked = current
        .caller()
        .walk_at(int(directory), path, LastLink::Keep)?;
    walked.last_name(Errno::EEXIST)?;
    if walked.entry.is_some() {
        return Err(Errno::EEXIST);
    }
    if walked.slash && !is_directory {
        return Err(Errno::ENOENT);
    }
    Ok(walked)
}

/// Creates an inode and links it under the name that `walked` contains.
fn make(current: &Current<'_>, walked: &Walked, body: Body, permissions: u32) -> CallResult {
    let now = current.vfs().now();
    let file_system = &walked.parent.inode.file_system;
    let inode = Inode::new(
        file_system,
        body,
        permissions,
        current.caller().subject().owner(),
        now,
    );
    let name = walked.last_name(Errno::EEXIST)?;
    current
        .vfs()
        .mounts
        .names
        .create(&current.caller().change(), &walked.parent, name, inode)?;
    Ok(0)
}

fn make_directory(
    current: &Current<'_>,
    cgroups: &Cgroups,
    directory: u64,
    path: u64,
    mode: u64,
) -> CallResult {
    let walked = walk_new(current, directory, path, true)?;
    if let Some(node) = groups(&walked.parent.inode) {
        may_change(current, &walked.parent.inode)?;
        node.make_directory(cgroups, walked.last_name(Errno::EEXIST)?)?;
        return Ok(0);
    }
    let permissions = mode as u32 & 0o1777 & !current.fs().mask();
    make(current, &walked, Body::directory(), permissions)
}

/// Returns the node of an inode that is a cgroup directory. Returns `None` for other inodes.
fn groups(inode: &Inode) -> Option<&ProcNode> {
    ProcEntry::node_of(inode).filter(|node| node.cgroup().is_some())
}

/// Checks that the caller is allowed to create and remove entries of a cgroup directory.
fn may_change(current: &Current<'_>, directory: &Inode) -> Result<(), Errno> {
    directory.check(
        &current.caller().subject(),
        Permission::WRITE | Permission::EXECUTE,
    )
}

fn mkdir(current: &Current<'_>, cgroups: &Cgroups, arguments: &Arguments) -> CallResult {
    make_directory(current, cgroups, HERE, arguments[0], arguments[1])
}

fn mkdirat(current: &Current<'_>, cgroups: &Cgroups, arguments: &Arguments) -> CallResult {
    make_directory(current, cgroups, arguments[0], arguments[1], arguments[2])
}

fn make_node(
    current: &Current<'_>,
    memory: &Arc<Memory>,
    directory: u64,
    path: u64,
    mode: u64,
    device: u64,
) -> CallResult {
    let mode = mode as u32;
    let permissions = mode & 0o7777 & !current.fs().mask();
    let kind = mode & raw::S_IFMT;
    let body = match kind {
        0 | raw::S_IFREG => None,
        raw::S_IFIFO => Some(Body::Fifo(Arc::new(Pipe::new(memory)))),
        raw::S_IFCHR => {
            let number = DeviceNumber::decode(device as u32);
            Some(Body::Character(Device::from_number(number)))
        }
        // A socket file that is not bound to a socket.
        raw::S_IFSOCK => Some(Body::Socket),
        raw::S_IFDIR => return Err(Errno::EPERM),
        // Block devices cannot be created. The files of the existing disks are created at boot.
        _ => return Err(Errno::EINVAL),
    };
    let walked = walk_new(current, directory, path, false)?;
    match body {
        Some(body) => make(current, &walked, body, permissions),
        None => {
            let (now, mounts) = (current.vfs().now(), &current.vfs().mounts);
            let file_system = &walked.parent.inode.file_system;
            let inode = mounts.new_regular(
                file_system,
                permissions,
                current.caller().subject().owner(),
                now,
            )?;
            let name = walked.last_name(Errno::EEXIST)?;
            mounts
                .names
                .create(&current.caller().change(), &walked.parent, name, inode)?;
            Ok(0)
        }
    }
}

fn mknod(current: &Current<'_>, memory: &Arc<Memory>, arguments: &Arguments) -> CallResult {
    let &[path, mode, device, ..] = arguments;
    make_node(current, memory, HERE, path, mode, device)
}

fn mknodat(current: &Current<'_>, memory: &Arc<Memory>, arguments: &Arguments) -> CallResult {
    let &[directory, path, mode, device, ..] = arguments;
    make_node(current, memory, directory, path, mode, device)
}

fn remove(
    current: &Current<'_>,
    cgroups: &Cgroups,
    directory: u64,
    path: u64,
    removal: Removal,
) -> CallResult {
    let walked = current
        .caller()
        .walk_at(int(directory), path, LastLink::Keep)?;
    let unnamed = match (removal, &walked.last) {
        (Removal::Other, _) => Errno::EISDIR,
        (Removal::Directory, memwright_linux_vfs::fs::walk::Last::Current) if walked.slash => {
            let root = Arc::ptr_eq(&walked.parent, &current.fs().root());
            if root { Errno::EBUSY } else { Errno::EINVAL }
        }
        (Removal::Directory, memwright_linux_vfs::fs::walk::Last::Parent) => Errno::ENOTEMPTY,
        (Removal::Directory, _) => Errno::EINVAL,
    };
    let name = walked.last_name(unnamed)?;
    let entry = walked.entry.as_ref().ok_or(Errno::ENOENT)?;
    if walked.slash && removal == Removal::Other {
        let directory = entry.inode.is_directory();
        return Err(if directory {
            Errno::EISDIR
        } else {
            Errno::ENOTDIR
        });
    }
    if let Some(node) = groups(&entry.inode).filter(|_| removal == Removal::Directory) {
        may_change(current, &walked.parent.inode)?;
        node.remove_directory(cgroups)?;
        return Ok(0);
    }
    current
        .vfs()
        .mounts
        .names
        .remove(&current.caller().change(), &walked.parent, name, removal)?;
    Ok(0)
}

fn rmdir(current: &Current<'_>, cgroups: &Cgroups, arguments: &Arguments) -> CallResult {
    remove(current, cgroups, HERE, arguments[0], Removal::Directory)
}

fn unlink(current: &Current<'_>, cgroups: &Cgroups, arguments: &Arguments) -> CallResult {
    remove(current, cgroups, HERE, arguments[0], Removal::Other)
}

fn unlinkat(current: &Current<'_>, cgroups: &Cgroups, arguments: &Arguments) -> CallResult {
    let &[directory, path, flags, ..] = arguments;
    let removal = match flags as u32 {
        0 => Removal::Other,
        raw::AT_REMOVEDIR => Removal::Directory,
        _ => return Err(Errno::EINVAL),
    };
    remove(current, cgroups, directory, path, removal)
}

fn rename_at(
    current: &Current<'_>,
    old: (u64, u64),
    new: (u64, u64),
    mode: RenameMode,
) -> CallResult {
    current.check_heap()?;
    let from = current
        .caller()
        .walk_at(int(old.0), old.1, LastLink::Keep)?;
    let to = current
        .caller()
        .walk_at(int(new.0), new.1, LastLink::Keep)?;
    let taken = if mode == RenameMode::Keep {
        Errno::EEXIST
    } else {
        Errno::EBUSY
    };
    let from_side = RenameSide {
        parent: &from.parent,
        name: from.last_name(Errno::EBUSY)?,
        slash: from.slash,
    };
    let to_side = RenameSide {
        parent: &to.parent,
        name: to.last_name(taken)?,
        slash: to.slash,
    };
    current
        .vfs()
        .mounts
        .names
        .rename(&current.caller().change(), from_side, to_side, mode)?;
    Ok(0)
}

fn rename(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[old, new, ..] = arguments;
    rename_at(current, (HERE, old), (HERE, new), RenameMode::Replace)
}

fn renameat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[old_directory, old, new_directory, new, ..] = arguments;
    rename_at(
        current,
        (old_directory, old),
        (new_directory, new),
        RenameMode::Replace,
    )
}

fn renameat2(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[old_directory, old, new_directory, new, flags, _] = arguments;
    let mode = RenameMode::decode(flags as u32)?;
    rename_at(current, (old_directory, old), (new_directory, new), mode)
}

fn link_at(current: &Current<'_>, old: (u64, u64), new: (u64, u64), flags: u32) -> CallResult {
    if flags & !(raw::AT_SYMLINK_FOLLOW | raw::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let follow = flags & raw::AT_SYMLINK_FOLLOW != 0;
    let nofollow = if follow { 0 } else { raw::AT_SYMLINK_NOFOLLOW };
    let how = flags & raw::AT_EMPTY_PATH | nofollow;
    let entry = current.caller().resolve_at(int(old.0), old.1, how)?;
    let walked = walk_new(current, new.0, new.1, false)?;
    let name = walked.last_name(Errno::EEXIST)?;
    // A file that was opened with `O_TMPFILE` has no name, but can be linked nevertheless. A file whose name was
    // removed cannot.
    let nameless = entry.is_removed() && entry.name().first() == Some(&b'#');
    let mounts = &current.vfs().mounts;
    mounts.names.link(
        &current.caller().change(),
        &entry.inode,
        nameless,
        &walked.parent,
        name,
    )?;
    Ok(0)
}

fn link(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[old, new, ..] = arguments;
    link_at(current, (HERE, old), (HERE, new), 0)
}

fn linkat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[old_directory, old, new_directory, new, flags, _] = arguments;
    link_at(
        current,
        (old_directory, old),
        (new_directory, new),
        flags as u32,
    )
}

fn symlink_at(current: &Current<'_>, target: u64, directory: u64, path: u64) -> CallResult {
    let target = current.user.read_path(target)?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let walked = walk_new(current, directory, path, false)?;
    make(current, &walked, Body::Symlink(target.into()), 0o777)
}

fn symlink(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[target, path, ..] = arguments;
    symlink_at(current, target, HERE, path)
}

fn symlinkat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[target, directory, path, ..] = arguments;
    symlink_at(current, target, directory, path)
}

fn read_link(
    current: &Current<'_>,
    directory: u64,
    path: u64,
    address: u64,
    size: u64,
) -> CallResult {
    let size = i32::try_from(size as i64)
        .ok()
        .filter(|size| *size > 0)
        .ok_or(Errno::EINVAL)?;
    let flags = raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH;
    let entry = match current.caller().resolve_at(int(directory), path, flags) {
        // An empty path refers to the file of the descriptor. Without a descriptor, it is an error.
        Ok(_) if directory == HERE && current.user.read_path(path)?.is_empty() => {
            return Err(Errno::ENOENT);
        }
        result => result?,
    };
    let target: Vec<u8> = entry.inode.shown_link(current)?;
    let length = target.len().min(size as usize);
    current.user.write_bytes(address, &target[..length])?;
    Ok(length as u64)
}

fn readlink(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[path, address, size, ..] = arguments;
    read_link(current, HERE, path, address, size)
}

fn readlinkat(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[directory, path, address, size, ..] = arguments;
    read_link(current, directory, path, address, size)
}
