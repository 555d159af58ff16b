//! System calls that create unnamed files in memory: `memfd_create` and `memfd_secret`.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::{Kind, SystemCall, handler, real},
        memory::hugetlb,
    },
};
use alloc::{boxed::Box, sync::Arc};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_vfs::fs::{
    OpenFile,
    dentry::Dentry,
    file_system::FileSystem,
    inode::{Body, Inode},
    open_file::File,
    regular::{Regular, RegularFile, Seals},
    secret::SecretFile,
};

const MEMFD_FLAGS: &[(u64, &str)] = &[
    (raw::MFD_CLOEXEC as u64, "MFD_CLOEXEC"),
    (raw::MFD_ALLOW_SEALING as u64, "MFD_ALLOW_SEALING"),
    (raw::MFD_HUGETLB as u64, "MFD_HUGETLB"),
    (raw::MFD_NOEXEC_SEAL as u64, "MFD_NOEXEC_SEAL"),
    (raw::MFD_EXEC as u64, "MFD_EXEC"),
];

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_memfd_create,
        "memfd_create",
        &[Kind::Text, Kind::Flags(MEMFD_FLAGS)],
        handler!(memfd_create, memory),
    ),
    real(
        raw::__NR_memfd_secret,
        "memfd_secret",
        &[Kind::Hex],
        handler!(memfd_secret, memory),
    ),
];

/// Maximum length of a name in bytes: with the prefix `memfd:`, it is as long as a file name can be.
const NAME_MAX: usize = 249;

fn memfd_create(current: &Current<'_>, memory: &Arc<Memory>, arguments: &Arguments) -> CallResult {
    let &[name, flags, ..] = arguments;
    let flags = flags as u32;
    let known = raw::MFD_CLOEXEC
        | raw::MFD_ALLOW_SEALING
        | raw::MFD_HUGETLB
        | raw::MFD_NOEXEC_SEAL
        | raw::MFD_EXEC;
    let both = raw::MFD_NOEXEC_SEAL | raw::MFD_EXEC;
    let huge = flags & raw::MFD_HUGETLB != 0;
    let size = if huge {
        hugetlb::SIZE_BITS << hugetlb::SIZE_SHIFT
    } else {
        0
    };
    if flags & !(known | size) != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    current.check_heap()?;
    let name = current
        .user
        .read_string(name, NAME_MAX + 1, Errno::EINVAL)?;
    current.caller().check_free_descriptor()?;
    if huge && !hugetlb::has_size(flags) {
        return Err(Errno::ENODEV);
    }
    current.caller().check_open_files()?;
    let sealed_mode = flags & raw::MFD_NOEXEC_SEAL != 0;
    let mut seals = Seals::empty();
    if flags & raw::MFD_ALLOW_SEALING == 0 && !sealed_mode {
        seals |= Seals::SEAL;
    }
    if sealed_mode {
        seals |= Seals::EXEC;
    }
    let permissions = if sealed_mode { 0o666 } else { 0o777 };
    let vfs = current.vfs();
    let inode = if huge {
        let contents = Regular::huge(memory, seals, None);
        nameless(current, vfs.mounts.huge_files(), contents, permissions)
    } else {
        let contents = Regular::nameless(memory, seals)?;
        nameless(current, vfs.mounts.memory_files(), contents, permissions)
    };
    let file = Box::new(RegularFile::new(&inode, true)?);
    let path = [b"/memfd:", &name[..]].concat();
    let close = if flags & raw::MFD_CLOEXEC != 0 {
        raw::O_CLOEXEC
    } else {
        0
    };
    add(current, &path, inode, file, close)
}

/// Implements `memfd_secret` (Linux 7.2 `mm/secretmem.c`).
fn memfd_secret(current: &Current<'_>, memory: &Arc<Memory>, arguments: &Arguments) -> CallResult {
    let flags = arguments[0] as u32;
    if flags & !raw::O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    current.check_heap()?;
    current.caller().check_free_descriptor()?;
    current.caller().check_open_files()?;
    let contents = Regular::secret(memory)?;
    let home = current.vfs().mounts.memory_files();
    let inode = nameless(current, home, contents, 0o600);
    add(current, b"/secretmem", inode, Box::new(SecretFile), flags)
}

/// Creates the inode of a file that is not in a directory.
fn nameless(
    current: &Current<'_>,
    home: &Arc<FileSystem>,
    contents: Regular,
    permissions: u32,
) -> Arc<Inode> {
    let now = current.vfs().now();
    let body = Body::Regular(contents);
    let inode = Inode::new(
        home,
        body,
        permissions,
        current.caller().subject().owner(),
        now,
    );
    inode.change(|metadata| metadata.links = 0);
    Arc::new(inode)
}

/// Opens the file of `inode`. The link in `/proc/PID/fd` shows `path` as its target. Returns the descriptor.
fn add(
    current: &Current<'_>,
    path: &[u8],
    inode: Arc<Inode>,
    file: Box<dyn File>,
    close: u32,
) -> CallResult {
    let entry = Arc::new(Dentry::detached(path, inode));
    entry.mark_removed();
    let flags = raw::O_RDWR | raw::O_LARGEFILE;
    let open = OpenFile::new(Some(current.vfs()), entry, flags, file);
    current.caller().add_descriptor(Arc::new(open), close)
}
