//! `/proc/PID/mem`: the memory of a process. Accesses ignore the permissions of areas, like accesses by a debugger. A
//! write to read-only private memory changes a private copy of the page (Linux 7.3 `fs/proc/base.c`, `mem_rw` with
//! `FOLL_FORCE`).

use alloc::sync::{Arc, Weak};
use memwright_linux_abi::{Space, errno::Errno};
use memwright_linux_memory::reclaim::Reclaim;
use memwright_linux_vfs::{
    direct_reclaim::Retry,
    fs::{
        caller::Caller,
        open_file::{File, OpenFile},
        seek::Whence,
        transfer::{Sink, Source},
    },
    user::USER_END,
};
use memwright_table::VirtAddr;

/// An open `/proc/PID/mem`. It accesses the address space that the process had when the file was opened.
pub struct MemoryFile {
    reclaim: &'static Reclaim,
    /// A weak reference, because an open file does not keep the address space alive. Once the address space is
    /// destroyed, reads return no data.
    space: Weak<Space>,
}

impl MemoryFile {
    /// Creates the open file for the memory of `space`.
    #[must_use]
    pub fn new(reclaim: &'static Reclaim, space: &Arc<Space>) -> Self {
        Self {
            reclaim,
            space: Arc::downgrade(space),
        }
    }
}

/// The number of bytes that are copied through the kernel stack at a time.
const CHUNK: usize = 1024;

impl File for MemoryFile {
    fn read(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let Some(space) = self.space.upgrade() else {
            return Ok(0);
        };
        let mut buffer = [0; CHUNK];
        let mut done = 0;
        while sink.left() > 0 && *position < USER_END {
            let step = CHUNK - (*position % CHUNK as u64) as usize;
            let step = step.min(sink.left());
            let (at, bytes) = (VirtAddr::new(*position), &mut buffer[..step]);
            let read = match self.reclaim.retry(|| space.read_forced(at, bytes)) {
                Ok(()) => step,
                Err((_, count)) => count,
            };
            let put = if read == 0 {
                0
            } else {
                sink.put(&buffer[..read])?
            };
            done += put;
            *position += put as u64;
            if put < step {
                break;
            }
        }
        if done == 0 && sink.left() > 0 {
            Err(Errno::EIO)
        } else {
            Ok(done)
        }
    }

    fn write(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let Some(space) = self.space.upgrade() else {
            return Ok(0);
        };
        let wanted = source.left();
        let mut buffer = [0; CHUNK];
        let mut done = 0;
        while source.left() > 0 && *position < USER_END {
            let step = CHUNK - (*position % CHUNK as u64) as usize;
            let taken = source.take(&mut buffer[..step])?;
            let (at, bytes) = (VirtAddr::new(*position), &buffer[..taken]);
            let stored = match self.reclaim.retry(|| space.write_forced(at, bytes)) {
                Ok(()) => taken,
                Err((_, count)) => count,
            };
            done += stored;
            *position += stored as u64;
            if stored < step {
                break;
            }
        }
        if done == 0 && wanted > 0 {
            Err(Errno::EIO)
        } else {
            Ok(done)
        }
    }

    fn seek(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        position: u64,
        offset: i64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        // A seek accepts any unsigned position, but reads and writes at an invalid position fail (`mem_lseek`).
        match whence {
            Whence::Start => Ok(offset as u64),
            Whence::Position => Ok(position.wrapping_add_signed(offset)),
            Whence::End | Whence::Data | Whence::Hole => Err(Errno::EINVAL),
        }
    }
}
