//! Copies the contents of a file from the lower tree (copy-up).

use crate::{
    direct_reclaim::Retry,
    fs::{
        body::regular::{Contents, Regular, object_errno},
        caller::Caller,
        inode::Inode,
        lower::answer_room,
        lower_tree::Lower,
        vfs::Vfs,
    },
};
use memwright_linux_abi::{
    channel::lower::{LOWER_READ, LowerRequest},
    errno::Errno,
};
use memwright_linux_base::sync::PausePoints;
use memwright_table::PAGE_SIZE;

/// After a copy-up, at least 1/`SPARED` of all frames must be free.
const SPARED: u64 = 16;

/// Copies the contents of a file if they are still in the lower tree. Takes no guest time, unless memory has to be
/// reclaimed.
///
/// # Errors
/// `ENOMEM` if the file does not fit into memory, `ERESTARTSYS` if a signal arrives while another thread copies, and
/// the errors of the host's file system, such as `EACCES`.
pub fn copy_up(caller: &dyn Caller, inode: &Inode, regular: &Regular) -> Result<(), Errno> {
    if !regular.is_lower() {
        return Ok(());
    }
    let _turn = regular.take_turn(caller)?;
    // Another thread may have copied the file in the meantime.
    let Some(lower) = inode
        .file_system
        .lower
        .as_ref()
        .filter(|_| regular.is_lower())
    else {
        return Ok(());
    };
    let path = lower.path(inode.number, b"")?;
    let size = regular.size();
    let frames = caller.vfs().memory.frames();
    if size.div_ceil(PAGE_SIZE as u64) + frames.total() / SPARED > frames.free() {
        let _ = lower.ask(LowerRequest::NoRoom { path: &path }, &mut answer_room(1)?);
        return Err(Errno::ENOMEM);
    }
    let mut room = answer_room(1 + LOWER_READ)?;
    let mut points = PausePoints::every(1);
    let mut offset = 0;
    while offset < size {
        points.round();
        let path = &path;
        let part = lower.ask(LowerRequest::Read { path, offset }, &mut room)?;
        if part.is_empty() {
            return Err(Errno::EIO);
        }
        store(caller.vfs(), lower, regular, offset, part)?;
        offset += part.len() as u64;
    }
    regular.leave_lower();
    lower.forget(inode.number);
    Ok(())
}

/// Stores bytes at `offset`. Stops the guest's clock meanwhile, except while memory is reclaimed.
fn store(
    vfs: &Vfs,
    lower: &Lower,
    regular: &Regular,
    offset: u64,
    bytes: &[u8],
) -> Result<(), Errno> {
    let Contents::Small(pages) = &regular.pages else {
        return Err(Errno::EIO);
    };
    for (number, page) in bytes.chunks(PAGE_SIZE).enumerate() {
        let at = offset + (number * PAGE_SIZE) as u64;
        lower.clock.pause_clock();
        let stored = pages.write_at(at, page);
        lower.clock.resume_clock();
        if stored != Ok(page.len()) {
            let stored = vfs.reclaim.retry(|| pages.write_at(at, page));
            if stored.map_err(object_errno)? < page.len() {
                return Err(Errno::ENOMEM);
            }
        }
    }
    Ok(())
}
