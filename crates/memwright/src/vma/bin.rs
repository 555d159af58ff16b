//! Where areas wait that were taken out of the map.

use alloc::vec::Vec;

use memwright_table::{OutOfMemory, TryPush};

use super::area::Area;

/// Areas taken out of the map, to be dropped once no lock is held: dropping the last user of an object
/// may run code of the file system, which has locks of its own.
///
/// Space is reserved before the first area is taken out; a few fit without any allocation.
pub(crate) struct AreaBin<B> {
    near: [Option<Area<B>>; AreaBin::<()>::NEAR],
    far: Vec<Area<B>>,
    used: usize,
}

impl AreaBin<()> {
    const NEAR: usize = 3;
}

impl<B> AreaBin<B> {
    pub(crate) fn new() -> Self {
        Self {
            near: [const { None }; AreaBin::<()>::NEAR],
            far: Vec::new(),
            used: 0,
        }
    }

    /// Makes room for `more` areas.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let beyond = (self.used + more).saturating_sub(AreaBin::<()>::NEAR);
        self.far
            .try_make_room(beyond.saturating_sub(self.far.len()))
    }

    /// Takes an area, for which room was reserved.
    #[expect(clippy::disallowed_methods, reason = "room was reserved")]
    pub(crate) fn take(&mut self, area: Area<B>) {
        if let Some(slot) = self.near.get_mut(self.used) {
            *slot = Some(area);
        } else {
            debug_assert!(self.far.len() < self.far.capacity());
            self.far.push(area);
        }
        self.used += 1;
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.near.iter().flatten().count() + self.far.len()
    }
}
