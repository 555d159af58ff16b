//! Adds seals to memfds. A write seal and a shared writable mapping exclude each other, so no write seal is added while
//! a mapping is being created.

use crate::fs::{
    open_file::OpenFile,
    regular::{Regular, Seals},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_linux_abi::{Memory, errno::Errno};
use memwright_table::{Frame, PAGE_SIZE};

impl Regular {
    /// Returns the seals.
    #[must_use]
    pub fn seals(&self) -> Seals {
        Seals::from_bits_retain(self.seals.load(Ordering::Relaxed))
    }

    /// Adds the seals `more`. The caller holds the mutex of writes and size changes. `runs` is true if the file has an
    /// execute bit. For such a file, the seal `EXEC` implies the seals against writing and size changes (Linux 7.3
    /// `mm/memfd.c`, `memfd_add_seals`).
    ///
    /// # Errors
    /// `EPERM` if the file has the seal `SEAL`; `EBUSY` for the seal `WRITE` while a shared mapping is or can become
    /// writable, or a page is pinned.
    pub fn add_seals(&self, memory: &Memory, more: Seals, runs: bool) -> Result<(), Errno> {
        let now = self.seals();
        if now.contains(Seals::SEAL) {
            return Err(Errno::EPERM);
        }
        let more = implied_seals(more, runs);
        if !more.contains(Seals::WRITE) || now.contains(Seals::WRITE) {
            self.seals.fetch_or(more.bits(), Ordering::SeqCst);
            return Ok(());
        }
        let begun = (self.mapping).compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst);
        begun.map_err(|_| Errno::EBUSY)?;
        let busy = self.pages().mappings().may_be_written() || self.has_pinned_page(memory);
        if !busy {
            self.seals.fetch_or(more.bits(), Ordering::SeqCst);
        }
        self.mapping.store(0, Ordering::SeqCst);
        if busy { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// Returns whether a page of the file is pinned. Such a page can be written without a mapping.
    fn has_pinned_page(&self, memory: &Memory) -> bool {
        const PAGE: u64 = PAGE_SIZE as u64;
        const TOGETHER: usize = 64;
        let frames = memory.frames();
        let (mut offset, size) = (0, self.size());
        while let Some(data) = self.find(offset, false).filter(|&data| data < size) {
            let first = data / PAGE;
            let mut run = [Frame::new(0); TOGETHER];
            let found = self.pages().cached_run(memory, first, u64::MAX, &mut run);
            let mut pinned = false;
            for place in (0..TOGETHER).filter(|place| found >> place & 1 != 0) {
                let frame = frames.adopt(run[place]);
                pinned |= frames.pins(frame.frame()) > 0;
            }
            if pinned {
                return true;
            }
            offset = (first + TOGETHER as u64) * PAGE;
        }
        false
    }

    /// Counts a shared writable mapping that is being created. No write seal can be added until the count is zero
    /// again.
    ///
    /// # Errors
    /// `EPERM` while a write seal is being added.
    fn begin_mapping(&self) -> Result<(), Errno> {
        self.mapping
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
                (count >= 0).then_some(count + 1)
            })
            .map(|_| ())
            .map_err(|_| Errno::EPERM)
    }
}

/// Returns the seals `more` and those that they imply. `runs` is true if the file has an execute bit.
fn implied_seals(more: Seals, runs: bool) -> Seals {
    if more.contains(Seals::EXEC) && runs {
        more | Seals::SHRINK | Seals::GROW | Seals::WRITE | Seals::FUTURE_WRITE
    } else {
        more
    }
}

/// Represents a shared writable mapping that is being created. While it exists, no write seal can be added to the file.
pub struct WritableMapping(Arc<OpenFile>);

impl WritableMapping {
    /// Begins the creation of a shared writable mapping of `open`. Returns `None` if `open` is not a regular file.
    ///
    /// # Errors
    /// `EPERM` while a write seal is being added.
    pub fn begin(open: &Arc<OpenFile>) -> Result<Option<Self>, Errno> {
        let Some(regular) = open.inode().regular() else {
            return Ok(None);
        };
        regular.begin_mapping()?;
        Ok(Some(Self(open.clone())))
    }
}

impl Drop for WritableMapping {
    fn drop(&mut self) {
        if let Some(regular) = self.0.inode().regular() {
            regular.mapping.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
