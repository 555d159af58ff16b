//! The `swapon` and `swapoff` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_linux_memory::swap::{self, DEFAULT_PRIORITY, Disk, Swaps};
use memwright_linux_tasks::process::{Process, Tasks};
use memwright_linux_vfs::{
    fs::{kind::Kind, open::OpenRequest},
    identity::Capabilities,
};

/// Flag: the call contains a priority (`SWAP_FLAG_PREFER`). This flag and the following ones are from
/// `include/linux/swap.h`.
const PREFER: u64 = 0x8000;
const PRIORITY: u64 = 0x7fff;
const DISCARD: u64 = 0x1_0000;
const DISCARD_ONCE: u64 = 0x2_0000;
const DISCARD_PAGES: u64 = 0x4_0000;
const VALID: u64 = PREFER | PRIORITY | DISCARD | DISCARD_ONCE | DISCARD_PAGES;

/// Flags of `swapon`.
pub const FLAGS: &[(u64, &str)] = &[
    (PREFER, "SWAP_FLAG_PREFER"),
    (DISCARD, "SWAP_FLAG_DISCARD"),
    (DISCARD_ONCE, "SWAP_FLAG_DISCARD_ONCE"),
    (DISCARD_PAGES, "SWAP_FLAG_DISCARD_PAGES"),
];

fn may(process: &Process) -> bool {
    let credentials = process.identity.credentials.lock();
    credentials.has(Capabilities::ADMINISTER)
}

/// Opens the file at a path in the caller's memory. Returns the disk, or `None` if the file is not a disk.
fn disk_at(current: &Current<'_>, path: u64, flags: u32) -> Result<Option<Arc<Disk>>, Errno> {
    let path = current.user.read_path(path)?;
    let request = OpenRequest::new(raw::O_RDWR | raw::O_LARGEFILE | flags, 0)?;
    let start = current.caller().path_start(raw::AT_FDCWD, &path)?;
    let open = current.caller().open_path(&start, &path, request)?;
    match open.inode().kind() {
        Kind::Block => Ok(open
            .as_kind::<swap::DiskFile>()
            .map(|file| file.disk().clone())),
        Kind::Regular
        | Kind::Directory
        | Kind::Symlink
        | Kind::Character
        | Kind::Fifo
        | Kind::Socket
        | Kind::Anonymous => Ok(None),
    }
}

/// Implements `swapon`. The disks need no discard requests, so `SWAP_FLAG_DISCARD` has no effect. Swap files are not
/// supported.
pub fn swapon(
    current: &Current<'_>,
    memory: &Memory,
    swaps: &Swaps,
    arguments: &Arguments,
) -> CallResult {
    let &[path, flags, ..] = arguments;
    if flags & !VALID != 0 {
        return Err(Errno::EINVAL);
    }
    if !may(current.process()) {
        return Err(Errno::EPERM);
    }
    current.check_heap()?;
    let disk = disk_at(current, path, raw::O_EXCL)?.ok_or(Errno::EINVAL)?;
    let priority = if flags & PREFER != 0 {
        (flags & PRIORITY) as i32
    } else {
        DEFAULT_PRIORITY
    };
    disk.swap_on(memory, priority)?;
    current.reclaim().wake();
    swaps.changes.note();
    Ok(0)
}

/// Implements `swapoff`.
pub fn swapoff(
    current: &Current<'_>,
    tasks: &Tasks,
    swaps: &Swaps,
    arguments: &Arguments,
) -> CallResult {
    if !may(current.process()) {
        return Err(Errno::EPERM);
    }
    let disk = disk_at(current, arguments[0], 0)?.ok_or(Errno::EINVAL)?;
    swap::remove(tasks, current, &disk)?;
    swaps.changes.note();
    Ok(0)
}
