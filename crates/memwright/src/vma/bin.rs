//! Deferred dropping of areas that were removed from the map of areas.

use alloc::vec::Vec;
use memwright_table::sync::pause_point;
use memwright_table::{OutOfMemory, TryPush};

use crate::types::notices::Notices;
use crate::vma::area::{Area, Backed};

/// The number of areas for which a bin needs no allocation.
const NEAR: usize = 3;
/// The number of areas in a chunk.
const CHUNK: usize = 256;

/// Areas that were removed from the map of areas. They are dropped once no lock is held, because dropping the last user
/// of an object can run file system code, which takes its own locks.
///
/// Space is reserved before the first area is removed. The first few areas need no allocation. Further areas are stored
/// in chunks, because one `munmap` can remove as many areas as a process can have, and the heap may have no contiguous
/// space for all of them.
pub(crate) struct AreaBin<B: Backed> {
    near: [Option<Area<B>>; NEAR],
    far: Vec<Vec<Area<B>>>,
    /// The index in `far` of the chunk that is being filled.
    filling: usize,
    /// The number of areas for which `far` has reserved space.
    room: usize,
    used: usize,
    /// The userfaultfd events of the operation that removed the areas.
    pub(crate) notices: Notices,
}

impl<B: Backed> AreaBin<B> {
    pub(crate) fn new() -> Self {
        Self {
            near: [const { None }; NEAR],
            far: Vec::new(),
            filling: 0,
            room: 0,
            used: 0,
            notices: Notices::NONE,
        }
    }

    /// Reserves space for `more` areas.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let near = NEAR.saturating_sub(self.used);
        let mut missing = more.saturating_sub(near + self.room);
        while missing > 0 {
            let size = missing.min(CHUNK);
            let mut chunk = Vec::new();
            chunk.try_make_room(size)?;
            self.far.try_push(chunk)?;
            self.room += size;
            missing -= size;
        }
        Ok(())
    }

    /// Adds an area, for which space must have been reserved.
    #[expect(clippy::disallowed_methods, reason = "room was reserved")]
    pub(crate) fn take(&mut self, area: Area<B>) {
        if let Some(slot) = self.near.get_mut(self.used) {
            *slot = Some(area);
        } else {
            debug_assert!(self.room > 0);
            let full = |chunk: &Vec<Area<B>>| chunk.len() == chunk.capacity();
            while full(&self.far[self.filling]) {
                self.filling += 1;
            }
            self.far[self.filling].push(area);
            self.room -= 1;
        }
        self.used += 1;
    }

    /// Drops the areas. Has a scheduling point after each chunk.
    fn empty(&mut self) {
        self.near = [const { None }; NEAR];
        for chunk in &mut self.far {
            drop(core::mem::take(chunk));
            pause_point::<B::Threads>();
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.near.iter().flatten().count() + self.far.iter().map(Vec::len).sum::<usize>()
    }
}

impl<B: Backed> Drop for AreaBin<B> {
    fn drop(&mut self) {
        if !self.far.is_empty() {
            self.empty();
        }
    }
}
