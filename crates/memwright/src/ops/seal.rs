//! Sealing (Linux 7.2 `mm/mseal.c`).

use memwright_table::sync::PausePoints;
use memwright_table::{Machine, VirtAddr};

use crate::mm::check;
use crate::mm::space::{AREAS, AddressSpace};
use crate::range::flags::{FlagsError, Holes};
use crate::types::error::SealError;
use crate::vma::area::AreaFlags;

impl From<FlagsError> for SealError {
    fn from(error: FlagsError) -> Self {
        match error {
            FlagsError::Hole(address) => Self::Hole(address),
            FlagsError::OverLimit(limit) => Self::OverLimit(limit),
            FlagsError::Misaligned => Self::Misaligned,
            FlagsError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Seals the `length` bytes from `address` on, rounded up to pages. The sealed areas can no longer be unmapped,
    /// replaced, moved or resized, and their protection can no longer be changed. If they are private anonymous memory
    /// that the program has no right to write, their contents can no longer be discarded.
    ///
    /// # Errors
    /// See [`SealError`]. If the range has a hole, nothing is sealed.
    pub fn seal(&self, address: VirtAddr, length: u64) -> Result<(), SealError> {
        let core = &*self.core;
        let range = check::pages(address, length)?;
        let mut areas = core.areas.write();
        let mut next = range.start;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.overlapping(range) {
            points.round();
            if area.start() > next {
                break;
            }
            next = area.end();
        }
        if next < range.end {
            return Err(SealError::Hole(next.address()));
        }
        let seal = |flags| flags | AreaFlags::SEALED;
        core.change_flags(&mut areas, range, Holes::Stop, seal)?;
        Ok(())
    }
}
