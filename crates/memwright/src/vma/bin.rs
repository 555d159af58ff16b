//! Where areas wait that were taken out of the map.

use alloc::vec::Vec;

use memwright_table::sync::pause_point;
use memwright_table::{OutOfMemory, TryPush};

use super::area::Area;
use crate::uffd::Notices;

/// Areas taken out of the map, to be dropped once no lock is held: dropping the last user of an object
/// may run code of the file system, which has locks of its own.
///
/// Space is reserved before the first area is taken out; a few fit without any allocation. More go into chunks, because
/// one unmapping may take out as many areas as a process can have, and a heap has no room for all of them in one piece.
pub(crate) struct AreaBin<B> {
    near: [Option<Area<B>>; AreaBin::<()>::NEAR],
    far: Vec<Vec<Area<B>>>,
    /// The chunk of `far` that is being filled.
    filling: usize,
    /// Areas for which `far` has room.
    room: usize,
    used: usize,
    /// Who is told of what happened to these areas, and others.
    pub(crate) notices: Notices,
}

impl AreaBin<()> {
    const NEAR: usize = 3;
    const CHUNK: usize = 256;
}

impl<B> AreaBin<B> {
    pub(crate) fn new() -> Self {
        Self {
            near: [const { None }; AreaBin::<()>::NEAR],
            far: Vec::new(),
            filling: 0,
            room: 0,
            used: 0,
            notices: Notices::NONE,
        }
    }

    /// Makes room for `more` areas.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let near = AreaBin::<()>::NEAR.saturating_sub(self.used);
        let mut missing = more.saturating_sub(near + self.room);
        while missing > 0 {
            let size = missing.min(AreaBin::<()>::CHUNK);
            let mut chunk = Vec::new();
            chunk.try_make_room(size)?;
            self.far.try_push(chunk)?;
            self.room += size;
            missing -= size;
        }
        Ok(())
    }

    /// Takes an area, for which room was reserved.
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

    /// Drops the areas taken out. Between chunks the thread may give way.
    fn empty(&mut self) {
        self.near = [const { None }; AreaBin::<()>::NEAR];
        for chunk in &mut self.far {
            drop(core::mem::take(chunk));
            pause_point();
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.near.iter().flatten().count() + self.far.iter().map(Vec::len).sum::<usize>()
    }
}

impl<B> Drop for AreaBin<B> {
    fn drop(&mut self) {
        if !self.far.is_empty() {
            self.empty();
        }
    }
}
