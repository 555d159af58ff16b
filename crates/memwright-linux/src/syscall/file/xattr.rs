//! Extended attributes: `setxattr` and its variants (Linux 6.18 `fs/xattr.c`, `mm/shmem.c`, `security/commoncap.c`).

use crate::{
    context::{Arguments, CallResult},
    syscall::{
        call::{Kind, SystemCall, int, real},
        file::status::AT_FLAGS,
    },
};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{abi_struct, errno::Errno};
use memwright_linux_vfs::{
    fs::{
        caller::Caller,
        dentry::Dentry,
        inode::Inode,
        kind::Kind as FileKind,
        permission::Permission,
        xattrs::{Accepts, LIST_MAX, NAME_MAX, TRUSTED, VALUE_MAX, Value, space_of},
    },
    identity::Capabilities,
    user::check_range,
};
use memwright_table::TryPush;

use Kind::{DirFd, Fd, Flags, In, InBuffer, OutBuffer, Path, Text, Unsigned};

const HOW: Kind = Flags(&[
    (raw::XATTR_CREATE as u64, "XATTR_CREATE"),
    (raw::XATTR_REPLACE as u64, "XATTR_REPLACE"),
]);

/// Maximum size of `struct xattr_args` in bytes.
const ARGUMENTS_MAX: u64 = 4096;

/// `XATTR_NAME_CAPS`.
const CAPABILITY: &[u8] = b"security.capability";

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_setxattr,
        "setxattr",
        &[Path, Text, InBuffer(3), Unsigned, HOW],
        |context, arguments| set_at(context.current.caller(), 0, arguments),
    ),
    real(
        raw::__NR_lsetxattr,
        "lsetxattr",
        &[Path, Text, InBuffer(3), Unsigned, HOW],
        |context, arguments| {
            set_at(
                context.current.caller(),
                raw::AT_SYMLINK_NOFOLLOW,
                arguments,
            )
        },
    ),
    real(
        raw::__NR_fsetxattr,
        "fsetxattr",
        &[Fd, Text, InBuffer(3), Unsigned, HOW],
        |context, arguments| {
            let &[number, rest @ ..] = arguments;
            set(
                context.current.caller(),
                Target::open(number),
                new_value(&rest),
            )
        },
    ),
    real(
        raw::__NR_getxattr,
        "getxattr",
        &[Path, Text, OutBuffer(3), Unsigned],
        |context, arguments| get_at(context.current.caller(), 0, arguments),
    ),
    real(
        raw::__NR_lgetxattr,
        "lgetxattr",
        &[Path, Text, OutBuffer(3), Unsigned],
        |context, arguments| {
            get_at(
                context.current.caller(),
                raw::AT_SYMLINK_NOFOLLOW,
                arguments,
            )
        },
    ),
    real(
        raw::__NR_fgetxattr,
        "fgetxattr",
        &[Fd, Text, OutBuffer(3), Unsigned],
        |context, arguments| {
            let &[number, name, buffer, size, ..] = arguments;
            get(
                context.current.caller(),
                Target::open(number),
                name,
                (buffer, size),
            )
        },
    ),
    real(
        raw::__NR_listxattr,
        "listxattr",
        &[Path, OutBuffer(2), Unsigned],
        |context, arguments| list_at(context.current.caller(), 0, arguments),
    ),
    real(
        raw::__NR_llistxattr,
        "llistxattr",
        &[Path, OutBuffer(2), Unsigned],
        |context, arguments| {
            list_at(
                context.current.caller(),
                raw::AT_SYMLINK_NOFOLLOW,
                arguments,
            )
        },
    ),
    real(
        raw::__NR_flistxattr,
        "flistxattr",
        &[Fd, OutBuffer(2), Unsigned],
        |context, arguments| {
            let &[number, buffer, size, ..] = arguments;
            list(
                context.current.caller(),
                Target::open(number),
                (buffer, size),
            )
        },
    ),
    real(
        raw::__NR_removexattr,
        "removexattr",
        &[Path, Text],
        |context, arguments| remove_at(context.current.caller(), 0, arguments),
    ),
    real(
        raw::__NR_lremovexattr,
        "lremovexattr",
        &[Path, Text],
        |context, arguments| {
            remove_at(
                context.current.caller(),
                raw::AT_SYMLINK_NOFOLLOW,
                arguments,
            )
        },
    ),
    real(
        raw::__NR_fremovexattr,
        "fremovexattr",
        &[Fd, Text],
        |context, arguments| {
            let &[number, name, ..] = arguments;
            remove(context.current.caller(), Target::open(number), name)
        },
    ),
    real(
        raw::__NR_setxattrat,
        "setxattrat",
        &[DirFd, Path, Flags(AT_FLAGS), Text, In(16), Unsigned],
        |context, arguments| {
            let &[directory, path, flags, name, extra, size] = arguments;
            let caller = context.current.caller();
            let target = Target::at(directory, path, flags)?;
            let extra = read_extra(caller, extra, size)?;
            let new = NewValue {
                name,
                address: extra.value,
                size: extra.size.into(),
                flags: extra.flags,
            };
            set(caller, target, new)
        },
    ),
    real(
        raw::__NR_getxattrat,
        "getxattrat",
        &[DirFd, Path, Flags(AT_FLAGS), Text, In(16), Unsigned],
        |context, arguments| {
            let &[directory, path, flags, name, extra, size] = arguments;
            let caller = context.current.caller();
            let extra = read_extra(caller, extra, size)?;
            if extra.flags != 0 {
                return Err(Errno::EINVAL);
            }
            let target = Target::at(directory, path, flags)?;
            get(caller, target, name, (extra.value, extra.size.into()))
        },
    ),
    real(
        raw::__NR_listxattrat,
        "listxattrat",
        &[DirFd, Path, Flags(AT_FLAGS), OutBuffer(4), Unsigned],
        |context, arguments| {
            let &[directory, path, flags, buffer, size, _] = arguments;
            let target = Target::at(directory, path, flags)?;
            list(context.current.caller(), target, (buffer, size))
        },
    ),
    real(
        raw::__NR_removexattrat,
        "removexattrat",
        &[DirFd, Path, Flags(AT_FLAGS), Text],
        |context, arguments| {
            let &[directory, path, flags, name, ..] = arguments;
            remove(
                context.current.caller(),
                Target::at(directory, path, flags)?,
                name,
            )
        },
    ),
];

abi_struct! {
    /// `struct xattr_args`.
    pub struct Extra {
        /// The address of the value.
        pub value: u64,
        /// The size in bytes of the value, or of the buffer for it.
        pub size: u32,
        /// Flags of `setxattr`.
        pub flags: u32,
    }
}

/// Reads a `struct xattr_args` of `size` bytes.
fn read_extra(caller: &dyn Caller, address: u64, size: u64) -> Result<Extra, Errno> {
    let known = 16;
    if size < known {
        return Err(Errno::EINVAL);
    }
    if size > ARGUMENTS_MAX {
        return Err(Errno::E2BIG);
    }
    for at in (known..size).step_by(8) {
        let length = (size - at).min(8) as usize;
        let mut rest = [0; 8];
        caller
            .memory()
            .read_bytes(address.wrapping_add(at), &mut rest[..length])?;
        if rest != [0; 8] {
            return Err(Errno::E2BIG);
        }
    }
    caller.memory().read_value(address)
}

/// The file that a call reads or changes.
#[derive(Clone, Copy)]
enum Target {
    /// A path with `AT_` flags, relative to a directory.
    Path {
        directory: i32,
        path: u64,
        flags: u32,
    },
    /// The descriptor of an open file.
    Open(i32),
}

impl Target {
    const fn open(number: u64) -> Self {
        Self::Open(int(number))
    }

    /// Decodes the arguments of a call with `AT_` flags.
    fn at(directory: u64, path: u64, flags: u64) -> Result<Self, Errno> {
        let (directory, flags) = (int(directory), flags as u32);
        if flags & !(raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH) != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Self::Path {
            directory,
            path,
            flags,
        })
    }

    const fn path(path: u64, flags: u32) -> Self {
        Self::Path {
            directory: raw::AT_FDCWD,
            path,
            flags,
        }
    }

    fn resolve(self, caller: &dyn Caller) -> Result<Arc<Dentry>, Errno> {
        match self {
            Self::Path {
                directory,
                path,
                flags,
            } => caller.resolve_at(directory, path, flags),
            Self::Open(number) => Ok(caller.files().get_usable(number)?.entry.clone()),
        }
    }
}

/// The arguments of a call that sets an attribute.
#[derive(Clone, Copy)]
struct NewValue {
    name: u64,
    address: u64,
    size: u64,
    flags: u32,
}

/// Decodes the arguments of a call that sets an attribute. `rest` are the arguments after the file.
const fn new_value(rest: &[u64; 5]) -> NewValue {
    let &[name, address, size, flags, _] = rest;
    NewValue {
        name,
        address,
        size,
        flags: flags as u32,
    }
}

fn set_at(caller: &dyn Caller, flags: u32, arguments: &Arguments) -> CallResult {
    let &[path, rest @ ..] = arguments;
    set(caller, Target::path(path, flags), new_value(&rest))
}

fn get_at(caller: &dyn Caller, flags: u32, arguments: &Arguments) -> CallResult {
    let &[path, name, buffer, size, ..] = arguments;
    get(caller, Target::path(path, flags), name, (buffer, size))
}

fn list_at(caller: &dyn Caller, flags: u32, arguments: &Arguments) -> CallResult {
    let &[path, buffer, size, ..] = arguments;
    list(caller, Target::path(path, flags), (buffer, size))
}

fn remove_at(caller: &dyn Caller, flags: u32, arguments: &Arguments) -> CallResult {
    let &[path, name, ..] = arguments;
    remove(caller, Target::path(path, flags), name)
}

/// The namespace of an attribute, determined by the prefix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// `security.capability`.
    Capability,
    /// Another name that begins with `security.`.
    Security,
    /// `system.posix_acl_access` or `system.posix_acl_default`: no file system here supports POSIX ACLs.
    List,
    /// `trusted.`.
    Trusted,
    /// `user.`.
    User,
    /// A name that consists of a known prefix only.
    Nameless,
    /// A name without a known prefix.
    Other,
}

fn class_of(name: &[u8]) -> Class {
    match name {
        CAPABILITY => Class::Capability,
        b"system.posix_acl_access" | b"system.posix_acl_default" => Class::List,
        b"security." | b"trusted." | b"user." => Class::Nameless,
        _ if name.starts_with(b"security.") => Class::Security,
        _ if name.starts_with(TRUSTED) => Class::Trusted,
        _ if name.starts_with(b"user.") => Class::User,
        _ => Class::Other,
    }
}

/// The kind of access to an attribute that a call requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Checks whether the prefix of a name permits this access to a file of this kind. Called before the permissions of the
/// file are checked (`xattr_permission`). `owner` is false if the file has the sticky bit and the caller does not own
/// it.
fn check_prefix(
    name: &[u8],
    access: Access,
    kind: FileKind,
    privileged: bool,
    owner: bool,
) -> Result<(), Errno> {
    let refused = match access {
        Access::Read => Errno::ENODATA,
        Access::Write => Errno::EPERM,
    };
    if name.starts_with(TRUSTED) && !privileged {
        return Err(refused);
    }
    if name.starts_with(b"user.") {
        let has_some = matches!(kind, FileKind::Regular | FileKind::Directory);
        if !has_some {
            return Err(refused);
        }
        if kind == FileKind::Directory && access == Access::Write && !owner {
            return Err(Errno::EPERM);
        }
    }
    Ok(())
}

/// Checks the caller's access to an attribute of a file.
fn check(caller: &dyn Caller, inode: &Inode, name: &[u8], access: Access) -> Result<(), Errno> {
    /// The sticky bit (`S_ISVTX`).
    const STICKY: u32 = 0o1000;
    let subject = caller.subject();
    let privileged = caller.has_any(Capabilities::ADMINISTER);
    let sticky = inode.metadata().permissions & STICKY != 0;
    let owner = !sticky || inode.check_owner(&subject).is_ok();
    check_prefix(name, access, inode.kind(), privileged, owner)?;
    let exempt = [&b"security."[..], b"system.", TRUSTED];
    if exempt.iter().any(|prefix| name.starts_with(prefix)) {
        return Ok(());
    }
    let wanted = match access {
        Access::Read => Permission::READ,
        Access::Write => Permission::WRITE,
    };
    inode.check(&subject, wanted)
}

/// Checks that files of this file system can have an attribute of this class.
fn check_class(inode: &Inode, class: Class) -> Result<(), Errno> {
    if !inode.file_system.has_xattrs() {
        return Err(Errno::EOPNOTSUPP);
    }
    match class {
        Class::Capability | Class::Security | Class::Trusted | Class::User => Ok(()),
        Class::Nameless => Err(Errno::EINVAL),
        Class::List | Class::Other => Err(Errno::EOPNOTSUPP),
    }
}

/// Returns whether a value of `security.capability` has a valid size and revision (`validheader`).
fn is_capability(value: &[u8]) -> bool {
    let revision = value.get(3).copied();
    matches!((value.len(), revision), (20, Some(2)) | (24, Some(3)))
}

/// Checks that the caller has the capability for changing attributes of this class (`cap_inode_setxattr`,
/// `cap_inode_removexattr`).
fn check_privilege(caller: &dyn Caller, class: Class) -> Result<(), Errno> {
    let needed = match class {
        Class::Capability => Capabilities::SET_FILE,
        Class::Security => Capabilities::ADMINISTER,
        Class::List | Class::Trusted | Class::User | Class::Nameless | Class::Other => {
            return Ok(());
        }
    };
    caller.has_any(needed).then_some(()).ok_or(Errno::EPERM)
}

fn read_name(caller: &dyn Caller, address: u64) -> Result<Vec<u8>, Errno> {
    let name = caller
        .memory()
        .read_string(address, NAME_MAX + 1, Errno::ERANGE)?;
    if name.is_empty() {
        return Err(Errno::ERANGE);
    }
    Ok(name)
}

fn set(caller: &dyn Caller, target: Target, new: NewValue) -> CallResult {
    let NewValue {
        name,
        address,
        size,
        flags,
    } = new;
    if flags & !(raw::XATTR_CREATE | raw::XATTR_REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    let accepts = Accepts {
        existing: flags & raw::XATTR_CREATE == 0,
        absent: flags & raw::XATTR_REPLACE == 0,
    };
    let name = read_name(caller, name)?;
    if size > VALUE_MAX as u64 {
        return Err(Errno::E2BIG);
    }
    caller.check_heap()?;
    let mut value = Vec::new();
    value
        .try_fill(size as usize, 0)
        .map_err(|_| Errno::ENOMEM)?;
    caller.memory().read_bytes(address, &mut value)?;
    let entry = target.resolve(caller)?;
    let (inode, class) = (&entry.inode, class_of(&name));
    if class == Class::List {
        return Err(Errno::EOPNOTSUPP);
    }
    if class == Class::Capability && size > 0 {
        if !is_capability(&value) {
            return Err(Errno::EINVAL);
        }
        check_privilege(caller, class)?;
    }
    check(caller, inode, &name, Access::Write)?;
    if class != Class::Capability {
        check_privilege(caller, class)?;
    }
    check_class(inode, class)?;
    let space = space_of(&name, &value);
    inode.file_system.take_xattr_space(space)?;
    let length = name.len() as u64;
    let value = Value::try_new(value).map_err(|_| Errno::ENOMEM);
    let result = value.and_then(|value| inode.xattrs.set(name, value, accepts));
    let freed = match &result {
        Ok(None) => 0,
        Ok(Some(old)) => space_of(&[], old) + length,
        Err(_) => space,
    };
    inode.file_system.return_xattr_space(freed);
    result?;
    let now = caller.vfs().now();
    inode.change(|metadata| metadata.changed = now);
    Ok(0)
}

fn remove(caller: &dyn Caller, target: Target, name: u64) -> CallResult {
    let name = read_name(caller, name)?;
    let entry = target.resolve(caller)?;
    let (inode, class) = (&entry.inode, class_of(&name));
    if class == Class::List {
        return Err(Errno::EOPNOTSUPP);
    }
    check(caller, inode, &name, Access::Write)?;
    check_privilege(caller, class)?;
    check_class(inode, class)?;
    let old = inode.xattrs.remove(&name)?;
    inode.file_system.return_xattr_space(space_of(&name, &old));
    let now = caller.vfs().now();
    inode.change(|metadata| metadata.changed = now);
    Ok(0)
}

/// Writes a result to a buffer of `size` bytes. At most `most` bytes of the buffer are used. Returns the length of the
/// result. For a `size` of 0, writes nothing.
fn give(caller: &dyn Caller, (buffer, size): (u64, u64), most: usize, bytes: &[u8]) -> CallResult {
    let length = bytes.len() as u64;
    if size == 0 || length == 0 {
        return Ok(length);
    }
    if length > size.min(most as u64) {
        return Err(too_short(size, most));
    }
    check_range(buffer, bytes.len())?;
    caller.memory().write_bytes(buffer, bytes)?;
    Ok(length)
}

/// Returns the error for a buffer that is too short: `ERANGE` if a larger buffer would help, otherwise `E2BIG`.
const fn too_short(size: u64, most: usize) -> Errno {
    if size >= most as u64 {
        Errno::E2BIG
    } else {
        Errno::ERANGE
    }
}

fn get(caller: &dyn Caller, target: Target, name: u64, buffer: (u64, u64)) -> CallResult {
    let name = read_name(caller, name)?;
    let entry = target.resolve(caller)?;
    let (inode, class) = (&entry.inode, class_of(&name));
    if class == Class::List {
        return Err(Errno::EOPNOTSUPP);
    }
    check(caller, inode, &name, Access::Read)?;
    check_class(inode, class)?;
    let value = inode.xattrs.get(&name)?;
    give(caller, buffer, VALUE_MAX, &value)
}

fn list(caller: &dyn Caller, target: Target, buffer: (u64, u64)) -> CallResult {
    let entry = target.resolve(caller)?;
    let xattrs = &entry.inode.xattrs;
    let privileged = caller.has_any(Capabilities::ADMINISTER);
    let (_, size) = buffer;
    if size == 0 {
        return Ok(xattrs.list_length(privileged) as u64);
    }
    let most = size.min(LIST_MAX as u64) as usize;
    let names = xattrs.list(privileged, most).map_err(|error| match error {
        Errno::ERANGE => too_short(size, LIST_MAX),
        _ => error,
    })?;
    give(caller, buffer, LIST_MAX, &names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_classes() {
        for (name, class) in [
            (&b"security.capability"[..], Class::Capability),
            (b"security.selinux", Class::Security),
            (b"security.", Class::Nameless),
            (b"system.posix_acl_access", Class::List),
            (b"system.other", Class::Other),
            (b"trusted.x", Class::Trusted),
            (b"trusted.", Class::Nameless),
            (b"user.x", Class::User),
            (b"user.", Class::Nameless),
            (b"user", Class::Other),
            (b"", Class::Other),
        ] {
            assert_eq!(class_of(name), class, "{name:?}");
        }
    }

    #[test]
    fn prefixes_permit() {
        use Access::{Read, Write};
        use FileKind::{Directory, Fifo, Regular};
        let refused = |access| match access {
            Read => Err(Errno::ENODATA),
            Write => Err(Errno::EPERM),
        };
        for access in [Read, Write] {
            for kind in [Regular, Directory, Fifo] {
                let trusted =
                    |privileged| check_prefix(b"trusted.x", access, kind, privileged, true);
                assert_eq!(trusted(true), Ok(()));
                assert_eq!(trusted(false), refused(access));
                let security = check_prefix(b"security.x", access, kind, false, false);
                assert_eq!(security, Ok(()));
            }
            let user = |kind, owner| check_prefix(b"user.x", access, kind, false, owner);
            assert_eq!(user(Regular, false), Ok(()));
            assert_eq!(user(Directory, true), Ok(()));
            assert_eq!(user(Fifo, true), refused(access));
            let sticky = user(Directory, false);
            assert_eq!(sticky.is_err(), access == Write);
        }
    }

    #[test]
    fn capabilities_have_a_size_and_a_revision() {
        let value = |size: usize, revision| {
            let mut value = [0; 32];
            value[3] = revision;
            is_capability(&value[..size])
        };
        assert!(value(20, 2) && value(24, 3));
        assert!(!value(20, 3) && !value(24, 2) && !value(12, 1) && !value(0, 0));
    }
}
