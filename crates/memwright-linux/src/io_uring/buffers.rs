//! Registered buffers of a ring. Their pages stay pinned until the buffers are unregistered (`io_uring/rsrc.c` of Linux
//! 7.2).

use crate::current::Current;
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use memwright::{Access, Awaited, FaultError};
use memwright_linux_abi::{Memory, Space, abi::IoVector, errno::Errno};
use memwright_linux_memory::userfault::Userfaults;
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::{Frame, PAGE_SIZE, TryPush, VirtAddr};

/// Maximum size of one buffer in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// A registered buffer.
struct Buffer {
    start: u64,
    length: u64,
    /// The pinned frames. The buffer holds one reference to each.
    frames: Vec<Frame>,
}

/// The registered buffers of a ring. Dropping this value unpins their pages.
pub struct Buffers {
    /// Physical memory.
    pub(super) memory: Arc<Memory>,
    all: Vec<Buffer>,
    /// The address space to which the pinned pages are accounted, and the number of accounted pages.
    account: (Weak<Space>, u64),
}

impl Buffers {
    /// Pins the memory of `pieces`. With a `limit`, pins at most that number of pages and accounts them to the address
    /// space. Without a limit, the pages are not accounted. Linux 7.3.4 does not account them either if the caller has
    /// `CAP_IPC_LOCK`.
    ///
    /// # Errors
    /// `EFAULT` if memory cannot be written or a piece is empty or too large, `ENOMEM` if `limit` is exceeded or memory
    /// is exhausted, and the errors of [`awaiting`].
    pub(crate) fn pin(
        current: &Current<'_>,
        memory: &Arc<Memory>,
        userfaults: &Userfaults,
        space: &Arc<Space>,
        pieces: &[IoVector],
        limit: Option<u64>,
    ) -> Result<Self, Errno> {
        let mut buffers = Self {
            memory: memory.clone(),
            all: Vec::new(),
            account: (Weak::new(), 0),
        };
        let mut left = limit.unwrap_or(u64::MAX);
        for piece in pieces {
            let (start, length) = (piece.base, piece.length);
            if length == 0 || length > MOST_BYTES {
                return Err(Errno::EFAULT);
            }
            let first = start / PAGE_SIZE as u64;
            let pages = (start + length).div_ceil(PAGE_SIZE as u64) - first;
            left = left.checked_sub(pages).ok_or(Errno::ENOMEM)?;
            let mut frames = Vec::new();
            frames.try_make_room(pages as usize)?;
            buffers.all.try_push(Buffer {
                start,
                length,
                frames,
            })?;
            let frames = buffers.all.last_mut().map(|buffer| &mut buffer.frames);
            let frames = frames.ok_or(Errno::ENOMEM)?;
            for page in first..first + pages {
                let at = VirtAddr::new(page * PAGE_SIZE as u64);
                let access = Access::WRITE;
                let pinned = userfaults.awaiting(current.thread, space, || {
                    match current.reclaim().retry(|| space.pin(at)) {
                        Err(FaultError::Watched(fault)) => Err(Awaited { at, access, fault }),
                        pinned => Ok(pinned),
                    }
                })?;
                #[expect(clippy::disallowed_methods, reason = "there is room")]
                frames.push(pinned.map_err(|_| Errno::EFAULT)?.into_raw());
            }
        }
        if let Some(limit) = limit {
            let pages = limit - left;
            space.account_pinned(pages);
            buffers.account = (Arc::downgrade(space), pages);
        }
        Ok(buffers)
    }

    /// Iterates over the frames of the `length` bytes at user address `address` in the registered buffer `number`. Each
    /// item consists of a frame, the offset in the frame, and the number of bytes in the frame.
    ///
    /// # Errors
    /// `EFAULT` if the bytes are not within the buffer.
    pub fn parts(
        &self,
        number: u16,
        address: u64,
        length: u32,
    ) -> Result<impl Iterator<Item = (Frame, usize, usize)> + '_, Errno> {
        let buffer = self.all.get(usize::from(number)).ok_or(Errno::EFAULT)?;
        let end = address.checked_add(length.into()).ok_or(Errno::EFAULT)?;
        if address < buffer.start || end > buffer.start + buffer.length {
            return Err(Errno::EFAULT);
        }
        let first = buffer.start / PAGE_SIZE as u64;
        let mut at = address;
        Ok(core::iter::from_fn(move || {
            let offset = (at % PAGE_SIZE as u64) as usize;
            let count = ((end - at) as usize).min(PAGE_SIZE - offset);
            let frame = *buffer
                .frames
                .get((at / PAGE_SIZE as u64 - first) as usize)?;
            at += count as u64;
            (count > 0).then_some((frame, offset, count))
        }))
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let (space, pages) = &self.account;
        if let Some(space) = space.upgrade() {
            space.unaccount_pinned(*pages);
        }
        let frames = self.memory.frames();
        for frame in self
            .all
            .iter_mut()
            .flat_map(|buffer| buffer.frames.drain(..))
        {
            drop(frames.adopt_pinned(frame));
        }
    }
}
