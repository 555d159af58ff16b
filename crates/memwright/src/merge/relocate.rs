//! A merged page changes its frame (Linux 7.2 `mm/ksm.c`, `folio_migrate_ksm`).

use core::sync::atomic::Ordering;

use memwright_table::sync::LockGuard;
use memwright_table::{Frame, FrameRef, Machine};

use super::scan::key_of;
use super::{Merging, Round};
use crate::memory::Memory;

/// Nobody looks for merged pages by their contents until it is dropped.
pub(crate) struct Pause<'a>(#[expect(dead_code, reason = "held")] LockGuard<'a, Round>);

impl<M: Machine> Merging<M> {
    /// Lets nobody look for merged pages by their contents for a while.
    pub(crate) fn pause(&self) -> Pause<'_> {
        Pause(self.round.lock())
    }

    /// Knows `new` in the place of the merged frame `old`, which has the same contents: its reference of that goes.
    /// Called while merging pauses.
    pub(crate) fn exchange(&self, memory: &Memory<M>, old: Frame, new: FrameRef<'_, M>) {
        let frames = memory.frames();
        let across = self.settings.across_nodes.load(Ordering::Relaxed);
        let node = (!across).then(|| frames.node_of(new.frame()));
        let key = key_of(frames.digest(new.frame()), node);
        let known = {
            let mut known = self.known.lock();
            let known_before = known.take(old);
            if known_before {
                // In the room that the old one had.
                known.merged.insert(key, new.into_raw());
            }
            known_before
        };
        if known {
            drop(frames.adopt(old));
        }
    }
}
