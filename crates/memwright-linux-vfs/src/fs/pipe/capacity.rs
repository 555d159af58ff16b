//! Changes the capacity of pipes.

use crate::{
    fs::{
        body::{pipe::Pipe, room::slots},
        caller::Caller,
    },
    identity::Capabilities,
};
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_table::PAGE_SIZE;

impl Pipe {
    /// Changes the capacity to `bytes`, rounded up to a power of two of pages. Returns the new capacity in bytes
    /// (`pipe_set_size` in `fs/pipe.c` of Linux 7.3).
    ///
    /// # Errors
    /// `EBUSY` if the contents do not fit in the new capacity or a writer is copying into the pipe, `EPERM` if the
    /// capacity grows beyond a limit and the caller is unprivileged, `EINVAL` for an invalid size, `ENOMEM`.
    pub fn set_capacity(&self, caller: &dyn Caller, bytes: usize) -> Result<usize, Errno> {
        let size = rounded_size(bytes).ok_or(Errno::EINVAL)?;
        let pages = size / PAGE_SIZE;
        let grows = pages > self.state.lock().ring.capacity() / PAGE_SIZE;
        let largest = &caller.vfs().file_limits.largest_pipe;
        if grows
            && size as u64 > largest.load(Ordering::Relaxed)
            && !caller.has_any(Capabilities::RESOURCES)
        {
            return Err(Errno::EPERM);
        }
        let mut slots = slots(pages)?;
        {
            let mut state = self.state.lock();
            if state.writing {
                return Err(Errno::EBUSY);
            }
            let ring = state.ring.resized(pages).ok_or(Errno::EBUSY)?;
            if let Some(room) = &mut state.room {
                room.resize(caller, pages as u64, grows)?;
            }
            for page in state.ring.used_pages() {
                let slot = state.ring.slot(page);
                slots[ring.slot(page)] = state.pages[slot].take();
            }
            state.ring = ring;
            core::mem::swap(&mut state.pages, &mut slots);
            state.note_front();
        }
        drop(slots);
        self.writable.wake_all();
        Ok(size)
    }
}

/// Returns the capacity in bytes of a pipe for a requested capacity of `bytes` bytes: the next power of two of pages.
/// Returns `None` if the request is too large (`round_pipe_size` in `fs/pipe.c` of Linux 7.3).
#[must_use]
pub fn rounded_size(bytes: usize) -> Option<usize> {
    const MOST: usize = 1 << 31;
    let pages = bytes.max(1).div_ceil(PAGE_SIZE);
    (bytes <= MOST).then(|| pages.next_power_of_two() * PAGE_SIZE)
}
