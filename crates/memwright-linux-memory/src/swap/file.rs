//! A disk as a file (Linux 7.2 `block/fops.c` and `block/ioctl.c`).

use super::Disk;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use linux_raw_sys::ioctl as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_vfs::{
    fs::{
        abilities::Splices,
        attributes::DeviceNumber,
        caller::Caller,
        disk_node::DiskNode,
        open_file::{File, OpenFile},
        seek::{Whence, sought},
        transfer::{Sink, Source, with_buffer},
    },
    manifest::SwapKind,
};
use memwright_table::PAGE_SIZE;

/// Sector size in bytes.
const SECTOR: u32 = 512;

/// An open disk.
pub struct DiskFile {
    disk: Arc<Disk>,
}

impl DiskFile {
    /// Returns the disk.
    #[must_use]
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Returns the first piece of a transfer of `left` bytes at `position`. The piece extends at most to the end of the
    /// page or of the disk. The result is the length of the piece, the page number, and the offset in the page.
    fn piece(&self, position: u64, left: usize) -> (usize, u32, usize) {
        let rest = self.disk.size().saturating_sub(position).min(left as u64) as usize;
        let offset = position as usize % PAGE_SIZE;
        let page = (position / PAGE_SIZE as u64) as u32;
        (rest.min(PAGE_SIZE - offset), page, offset)
    }
}

/// Major numbers of the drivers, from the range for local use (`Documentation/admin-guide/devices.txt` of Linux).
const ZRAM_MAJOR: u32 = 252;
const VIRTIO_MAJOR: u32 = 254;

impl DiskNode for Disk {
    fn name(&self) -> String {
        match self.kind() {
            #[expect(clippy::disallowed_macros, reason = "a short name")]
            SwapKind::Zram => alloc::format!("zram{}", self.minor()),
            SwapKind::Disk => String::from("vda"),
        }
    }

    fn device_number(&self) -> DeviceNumber {
        match self.kind() {
            SwapKind::Zram => DeviceNumber::new(ZRAM_MAJOR, self.minor()),
            SwapKind::Disk => DeviceNumber::new(VIRTIO_MAJOR, self.minor()),
        }
    }

    fn open(self: Arc<Self>, alone: bool) -> Result<Box<dyn File>, Errno> {
        if alone && self.is_in_use() {
            return Err(Errno::EBUSY);
        }
        Ok(Box::new(DiskFile { disk: self }))
    }
}

impl File for DiskFile {
    fn splices(&self) -> Splices {
        Splices::Both
    }

    fn read(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        let frames = caller.vfs().memory.frames();
        let mut done = 0;
        loop {
            let (length, page, offset) = self.piece(*position, sink.left());
            if length == 0 {
                return Ok(done);
            }
            let put = with_buffer(length, |buffer| {
                self.disk.get(frames, page, offset, buffer)?;
                sink.put(buffer)
            });
            match put {
                Ok(0) => return Ok(done),
                Ok(count) => {
                    *position += count as u64;
                    done += count;
                }
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    fn write(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        if self.disk.is_in_use() {
            return Err(Errno::ETXTBSY);
        }
        if source.left() > 0 && *position >= self.disk.size() {
            return Err(Errno::ENOSPC);
        }
        let frames = caller.vfs().memory.frames();
        let mut done = 0;
        loop {
            let (length, page, offset) = self.piece(*position, source.left());
            if length == 0 {
                return Ok(done);
            }
            let taken = with_buffer(length, |buffer| {
                let count = source.take(buffer)?;
                self.disk.put(frames, page, offset, &buffer[..count])?;
                Ok(count)
            });
            match taken {
                Ok(0) => return Ok(done),
                Ok(count) => {
                    *position += count as u64;
                    done += count;
                }
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
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
        sought(position, offset, whence, Some(self.disk.size()))
    }

    fn control(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        let size = self.disk.size();
        match command {
            raw::BLKGETSIZE64 => caller.memory().write_value(argument, &size)?,
            raw::BLKGETSIZE => caller
                .memory()
                .write_value(argument, &(size / u64::from(SECTOR)))?,
            // The sector size is a page, because the disk stores complete pages.
            raw::BLKSSZGET | raw::BLKPBSZGET => {
                caller.memory().write_value(argument, &(PAGE_SIZE as u32))?;
            }
            raw::BLKBSZGET => caller.memory().write_value(argument, &(PAGE_SIZE as u64))?,
            raw::BLKROGET => caller.memory().write_value(argument, &0_u32)?,
            // Nothing must be flushed, because a write is complete when it returns.
            raw::BLKFLSBUF => {}
            _ => return Err(Errno::ENOTTY),
        }
        Ok(0)
    }
}
