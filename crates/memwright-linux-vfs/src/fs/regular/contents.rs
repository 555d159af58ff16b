//! Reads and changes the contents of regular files. Runs direct reclaim if no frame is free.

use crate::{
    direct_reclaim::Retry,
    fs::{
        body::regular::{Contents, Regular, object_errno, read_errno},
        caller::Caller,
        seals::Seals,
        seek::SIZE_MAX,
        vfs::Vfs,
    },
};
use memwright::object::HUGE_BYTES;
use memwright_linux_abi::errno::Errno;
use memwright_table::PAGE_SIZE;

impl Regular {
    /// Allocates those pages of the bytes `start..end` that do not exist. The caller holds the mutex of writes and size
    /// changes.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn allocate(&self, vfs: &Vfs, start: u64, end: u64) -> Result<(), Errno> {
        match &self.pages {
            Contents::Small(pages) => {
                self.check_rooms(&vfs.memory, start, end)?;
                let made = vfs.reclaim.retry(|| pages.allocate(start, end));
                made.map_err(|_| Errno::ENOSPC)
            }
            Contents::Huge(pages) => pages.allocate(start, end).map_err(object_errno),
        }
    }

    /// Counts the pages of a read or write of `bytes` bytes for the caller's memcg, if it has one. If `stores` is set,
    /// also charges the file to that memcg, unless the file is already charged to a memcg.
    pub(super) fn charge(&self, caller: &dyn Caller, bytes: usize, stores: bool) {
        let Contents::Small(pages) = &self.pages else {
            return;
        };
        let memcg = caller.count_pages(bytes.div_ceil(PAGE_SIZE) as u64 + 1);
        if let Some(memcg) = memcg.filter(|_| stores) {
            pages.charge_to(memcg);
        }
    }

    /// Punches a hole: frees the pages that are completely inside the bytes `start..end`, and zeroes the other bytes of
    /// that range.
    ///
    /// # Errors
    /// `ENOMEM` or `EIO` if a partly zeroed page is swapped out and cannot be swapped in.
    pub fn punch(&self, vfs: &Vfs, start: u64, end: u64) -> Result<(), Errno> {
        match &self.pages {
            Contents::Small(pages) => {
                let punched = vfs.reclaim.retry(|| pages.punch(start, end));
                punched.map_err(read_errno)?;
            }
            Contents::Huge(pages) => pages.punch(start, end),
        }
        Ok(())
    }

    /// Changes the size of the file. The caller holds the mutex of writes and size changes.
    ///
    /// # Errors
    /// `EPERM` if a seal forbids the change, `EFBIG` beyond the maximum size, `EINVAL` if the file has huge pages and
    /// `size` is not a multiple of their size, `ENOMEM` or `EIO` if the page that contains the new end is swapped out
    /// and cannot be swapped in.
    pub fn set_size(&self, vfs: &Vfs, size: u64) -> Result<(), Errno> {
        if size > SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        if let Contents::Huge(_) = &self.pages
            && !size.is_multiple_of(HUGE_BYTES)
        {
            return Err(Errno::EINVAL);
        }
        let now = self.size();
        let forbidden = if size < now {
            Seals::SHRINK
        } else if size > now {
            Seals::GROW
        } else {
            Seals::empty()
        };
        if self.seals().intersects(forbidden) {
            return Err(Errno::EPERM);
        }
        match &self.pages {
            Contents::Small(pages) => {
                let set = vfs.reclaim.retry(|| pages.set_size(size));
                set.map_err(read_errno)?;
            }
            Contents::Huge(pages) => pages.set_size(size),
        }
        Ok(())
    }

    /// Reads on behalf of the kernel, for example to load a program. Uses no file position and updates no times.
    /// Returns the number of bytes read, which is 0 for a file of huge pages.
    ///
    /// # Errors
    /// `ENOMEM` or `EIO` if a page is swapped out and cannot be swapped in.
    pub fn read_at(&self, vfs: &Vfs, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        match &self.pages {
            Contents::Small(pages) => {
                let read = vfs.reclaim.retry(|| pages.read_at(offset, bytes));
                read.map_err(read_errno)
            }
            Contents::Huge(_) => Ok(0),
        }
    }

    /// Writes on behalf of the kernel. Uses no file position and updates no times. Returns the number of bytes written.
    ///
    /// # Errors
    /// `ENOSPC` if no frame is free; `EIO` if a page is swapped out and cannot be swapped in; `EINVAL` for a file of
    /// huge pages.
    pub fn write_at(&self, vfs: &Vfs, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        match &self.pages {
            Contents::Small(pages) => {
                let written = vfs.reclaim.retry(|| pages.write_at(offset, bytes));
                written.map_err(object_errno)
            }
            Contents::Huge(_) => Err(Errno::EINVAL),
        }
    }
}
