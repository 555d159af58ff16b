//! The operations of an open regular file: reads, writes, seeks and mappings.

use crate::{
    direct_reclaim::Retry,
    fs::{
        abilities::Splices,
        body::regular::{Contents, Regular, object_errno, read_errno},
        caller::Caller,
        file_system::FileSystemKind,
        inode::{Body, Inode},
        open_file::{File, Mapping, OpenFile},
        seals::Seals,
        seek::{Whence, moved, readable, storable},
        transfer::{Sink, Source, with_buffer},
        vfs::Vfs,
    },
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright::object::ObjectError;
use memwright_linux_abi::errno::Errno;
use memwright_table::PAGE_SIZE;

/// The operations of an open regular file.
pub struct RegularFile {
    inode: Arc<Inode>,
    writes: bool,
}

impl RegularFile {
    /// Creates the operations for an open of `inode`, which is a regular file. `writes` is true for an open for
    /// writing.
    ///
    /// # Errors
    /// `ETXTBSY` if the file is opened for writing while it is being executed.
    pub fn new(inode: &Arc<Inode>, writes: bool) -> Result<Self, Errno> {
        let file = Self {
            inode: inode.clone(),
            writes: false,
        };
        if writes {
            file.regular()?.begin_writing()?;
        }
        Ok(Self {
            writes,
            inode: inode.clone(),
        })
    }

    /// Returns the contents of the file.
    ///
    /// # Errors
    /// `EINVAL` if the inode is not a regular file.
    pub fn regular(&self) -> Result<&Regular, Errno> {
        match &self.inode.body {
            Body::Regular(regular) => Ok(regular),
            Body::Directory(_)
            | Body::Symlink(_)
            | Body::Character(_)
            | Body::Block(_)
            | Body::Fifo(_)
            | Body::Socket
            | Body::Console(_)
            | Body::Anonymous
            | Body::Generated(_) => Err(Errno::EINVAL),
        }
    }
}

impl Drop for RegularFile {
    fn drop(&mut self) {
        if self.writes
            && let Ok(regular) = self.regular()
        {
            regular.end_writing();
        }
    }
}

impl RegularFile {
    /// Stores up to `wanted` bytes of `source` at `position`, and advances `position`. Returns the number of bytes
    /// stored, and the error that ended the write, if any.
    fn store(
        &self,
        caller: &dyn Caller,
        position: &mut u64,
        source: &mut Source<'_>,
        wanted: usize,
    ) -> Result<(usize, Result<(), Errno>), Errno> {
        let regular = self.regular()?;
        let vfs = caller.vfs();
        regular.charge(caller, wanted, true);
        let mut done = 0;
        let mut prepared = *position;
        while done < wanted {
            if *position >= prepared {
                prepared = regular.prepare(*position, *position + (wanted - done) as u64);
            }
            let within = (*position % PAGE_SIZE as u64) as usize;
            let step = (PAGE_SIZE - within).min(wanted - done);
            let stored = regular
                .check_room(&vfs.memory, *position)
                .and_then(|()| store_part(vfs, regular, *position, source, step));
            match stored {
                Ok(0) => break,
                Ok(count) => {
                    *position += count as u64;
                    done += count;
                }
                Err(error) => return Ok((done, Err(error))),
            }
        }
        Ok((done, Ok(())))
    }
}

/// Stores up to `step` bytes of `source` at `position`, all in one page. Returns the number of bytes stored.
///
/// Bytes before the end of the file are copied directly from user memory to their page. A complete page that does not
/// exist yet is copied directly to a new frame. Other bytes beyond the end of the file are copied through a buffer,
/// because the file must grow only by bytes that were copied successfully.
fn store_part(
    vfs: &Vfs,
    regular: &Regular,
    position: u64,
    source: &mut Source<'_>,
    step: usize,
) -> Result<usize, Errno> {
    let memory = &vfs.memory;
    let index = position / PAGE_SIZE as u64;
    let within = (position % PAGE_SIZE as u64) as usize;
    if step == PAGE_SIZE {
        let frame = vfs.reclaim.retry(|| regular.frame_to_write(index));
        if let Some(frame) = frame.map_err(object_errno)? {
            let count = source.take_frame(memory, frame.frame(), 0, step)?;
            let left = if count == step {
                let added = regular.add_page(index, frame);
                added.map_err(object_errno)?
            } else {
                Some(frame)
            };
            let Some(frame) = left else {
                return Ok(count);
            };
            // A part of the source is not mapped, or another thread has created the page in the meantime. Write the
            // copied bytes from `frame`.
            return with_buffer(count, |buffer| {
                memory.frames().read(frame.frame(), 0, buffer);
                regular.write_at(vfs, position, buffer)
            });
        }
    }
    if position + step as u64 > regular.size() {
        return with_buffer(step, |buffer| {
            let count = source.take(buffer)?;
            regular.write_at(vfs, position, &buffer[..count])
        });
    }
    let frame = vfs.reclaim.retry(|| regular.frame_for(index, true));
    let frame = frame.map_err(object_errno)?;
    let frame = memory.frames().adopt(frame.ok_or(Errno::ENOSPC)?);
    source.take_frame(memory, frame.frame(), within, step)
}

impl File for RegularFile {
    fn splices(&self) -> Splices {
        if self.inode.file_system.kind == FileSystemKind::Hugetlb {
            Splices::Neither
        } else {
            Splices::Both
        }
    }

    fn read(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let pages = self.regular()?;
        let memory = &caller.vfs().memory;
        let wanted = readable(*position, sink.left(), pages.size());
        pages.charge(caller, wanted, false);
        let mut done = 0;
        while done < wanted {
            let within = (*position % PAGE_SIZE as u64) as usize;
            let step = (PAGE_SIZE - within).min(wanted - done);
            let index = *position / PAGE_SIZE as u64;
            let found = caller.vfs().reclaim.retry(|| pages.frame_for(index, false));
            let put = match found {
                Ok(Some(frame)) => {
                    // Adopt the reference, so that the frame stays allocated during the copy even if the file is
                    // truncated.
                    let frame = memory.frames().adopt(frame);
                    sink.put_frame(memory, frame.frame(), within, step)
                }
                Ok(None) => sink.put_zeroes(step),
                // Another thread has truncated the file since the read began.
                Err(ObjectError::BeyondEnd) => break,
                Err(error) => Err(read_errno(error)),
            };
            let put = match put {
                Ok(put) => put,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            *position += put as u64;
            done += put;
            if put < step {
                break;
            }
        }
        // `hugetlbfs_read_iter` does not update the access time.
        if done > 0 && matches!(pages.pages, Contents::Small(_)) {
            self.inode.touch_accessed(caller.vfs().now());
        }
        Ok(done)
    }

    fn write(
        &self,
        caller: &dyn Caller,
        open: &OpenFile,
        position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        let regular = self.regular()?;
        if let Contents::Huge(_) = regular.pages {
            return Err(Errno::EINVAL);
        }
        let turn = regular.take_turn(caller)?;
        let size = regular.size();
        // The end of a write must not exceed `i64::MAX` (Linux 7.2 `fs/read_write.c`, `rw_verify_area`).
        if position.saturating_add(source.left() as u64) > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        if open.flags() & raw::O_APPEND != 0 {
            *position = size;
        }
        let seals = regular.seals();
        if seals.intersects(Seals::WRITE | Seals::FUTURE_WRITE) {
            return Err(Errno::EPERM);
        }
        let limit = if seals.contains(Seals::GROW) {
            size
        } else {
            caller.file_size_limit()
        };
        let wanted = match storable(*position, source.left(), limit) {
            Err(Errno::EFBIG) if seals.contains(Seals::GROW) => return Err(Errno::EPERM),
            Err(error) => {
                // A write beyond the process's limit raises SIGXFSZ. A write beyond the maximum size of a file does not
                // (Linux 7.2 `fs/read_write.c`, `generic_write_check_limits`).
                if *position >= caller.file_size_limit() {
                    caller.file_too_large();
                }
                return Err(error);
            }
            Ok(wanted) => wanted,
        };
        if wanted > 0 {
            self.inode.drop_set_ids(caller);
        }
        let (done, result) = self.store(caller, position, source, wanted)?;
        drop(turn);
        if done > 0 {
            self.inode.touch_modified(caller.vfs().now());
            return Ok(done);
        }
        result.map(|()| 0)
    }

    fn seek(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        position: u64,
        offset: i64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        let pages = self.regular()?;
        match whence {
            Whence::Start => moved(0, offset),
            Whence::Position => moved(position, offset),
            Whence::End => moved(pages.size(), offset),
            Whence::Data | Whence::Hole => {
                let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                pages
                    .find(offset, whence == Whence::Hole)
                    .ok_or(Errno::ENXIO)
            }
        }
    }

    fn mapping(&self, open: &Arc<OpenFile>) -> Result<Mapping, Errno> {
        Ok(Mapping::Object(open.clone()))
    }
}
