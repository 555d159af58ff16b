//! Writeback of shared mappings (Linux 7.2 `mm/msync.c`).

use bitflags::bitflags;
use memwright_table::sync::PausePoints;
use memwright_table::{Machine, PageRange, VirtAddr};

use crate::mm::check::{self, RangeError};
use crate::mm::space::{AREAS, AddressSpace};
use crate::types::error::SyncError;
use crate::vma::area::AreaFlags;

bitflags! {
    /// The flags of `msync`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct SyncFlags: u8 {
        /// Write back and wait (`MS_SYNC`). Without this flag `msync` starts no writeback, as on Linux.
        const WAIT = 1;
        /// Invalidate other copies of the pages (`MS_INVALIDATE`). No such copies exist, so the only effect is an error
        /// for locked memory.
        const INVALIDATE = 2;
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Writes the shared pages of `length` bytes, rounded up to pages, back to their objects, if `flags` contains
    /// `WAIT`.
    ///
    /// # Errors
    /// See [`SyncError`]. An error for a hole is returned only after the other areas are written back.
    pub fn sync(&self, address: VirtAddr, length: u64, flags: SyncFlags) -> Result<(), SyncError> {
        let core = &*self.core;
        let range = check::pages(address, length).map_err(|error| match error {
            RangeError::Misaligned => SyncError::Misaligned,
            RangeError::Wraps => SyncError::OutOfRange,
        })?;
        let mut hole = None;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        let mut next = range.start;
        while next < range.end {
            points.round();
            let areas = core.areas.read(core.cpu());
            let found = areas
                .map
                .at_or_after(next)
                .map(|position| areas.map.get(position));
            let Some(area) = found.filter(|area| area.start() < range.end) else {
                hole = hole.or(Some(next));
                break;
            };
            if area.start() > next {
                hole = hole.or(Some(next));
                next = area.start();
            }
            if flags.contains(SyncFlags::INVALIDATE) && area.flags().contains(AreaFlags::LOCKED) {
                return Err(SyncError::Locked(next.address()));
            }
            let part = PageRange::new(next, area.end().min(range.end));
            let first = area.offset_of(part.start);
            let object = area
                .object()
                .filter(|_| flags.contains(SyncFlags::WAIT) && area.is_shared())
                .cloned();
            // Release the lock of the areas first: to write-protect its mappings, the object takes the area locks of
            // all address spaces that map it.
            drop(areas);
            if let Some(object) = object {
                object
                    .sync(&core.memory, first, part.len())
                    .map_err(SyncError::Object)?;
            }
            next = part.end;
        }
        match hole {
            Some(page) => Err(SyncError::Hole(page.address())),
            None => Ok(()),
        }
    }
}
