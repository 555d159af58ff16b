//! The pages that map a KSM frame (Linux 7.2 `mm/ksm.c`, `struct ksm_rmap_item`).
//!
//! Each merge records its page. A record may be stale, because the page was written, moved or unmapped since. A page
//! that a child inherited has no record until a later scan. The caller compares the reference count of the frame with
//! the number of recorded pages that map the frame, and so finds whether the records are complete. If they are not, the
//! caller searches all mergeable memory and records the pages that it finds.

use core::sync::atomic::Ordering;
use memwright_table::{Frame, Machine, OutOfMemory, Page, Shared};

use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::mm::merging::{MergedPlace, Merging};
use crate::types::digest_index::key_of;

/// A frame may have twice as many records as entries, plus this number of records.
const SPARE: u32 = 16;

impl<M: Machine> Merging<M> {
    /// Returns the key of the KSM frame `frame` in the index.
    pub(crate) fn key(&self, memory: &Memory<M>, frame: Frame) -> u64 {
        let frames = memory.frames();
        let across = self.settings.across_nodes.load(Ordering::Relaxed);
        let node = (!across).then(|| frames.node_of(frame));
        key_of(frames.digest(frame), node)
    }

    /// Records a page that maps the KSM frame `frame`, whose key is `key`. If the frame has so many records that most
    /// of them must be stale, first drops its other records. The next search then finds the entries again.
    pub(crate) fn note_place(
        &self,
        memory: &Memory<M>,
        key: u64,
        frame: Frame,
        place: MergedPlace,
    ) {
        let most = memory.frames().sharers(frame) * 2 + SPARE;
        self.known.lock().note_place(key, frame, place, most);
    }

    /// Calls `add` with each recorded page of a KSM frame.
    ///
    /// # Errors
    /// Those of `add`, which ends the search.
    ///
    /// # Locks
    /// Calls `add` with the lock of the index.
    pub(crate) fn for_each_place(
        &self,
        memory: &Memory<M>,
        frame: Frame,
        mut add: impl FnMut(&Shared<Core<M>>, Page) -> Result<(), OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let key = self.key(memory, frame);
        let known = self.known.lock();
        let Some(stable) = known.merged.find(key, |one| one.frame == frame) else {
            return Ok(());
        };
        for MergedPlace { space, page } in known.places.values(stable.places) {
            if let Some(space) = known.space(space) {
                add(space, page)?;
            }
        }
        Ok(())
    }

    /// Replaces the records of a KSM frame by the pages that map it.
    pub(crate) fn set_places<'a>(
        &self,
        memory: &Memory<M>,
        frame: Frame,
        pages: impl Iterator<Item = (&'a Core<M>, Page)>,
    ) where
        M: 'a,
    {
        let key = self.key(memory, frame);
        let mut known = self.known.lock();
        known.forget_places(key, frame);
        for (space, page) in pages {
            let space = space.merge_number.get();
            known.note_place(key, frame, MergedPlace { space, page }, u32::MAX);
        }
    }
}
