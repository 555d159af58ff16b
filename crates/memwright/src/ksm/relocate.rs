//! Migration of a KSM page (Linux 7.2 `mm/ksm.c`, `folio_migrate_ksm`).

use core::sync::atomic::Ordering;
use memwright_table::sync::LockGuard;
use memwright_table::{Frame, FrameRef, Machine};

use crate::mm::memory::Memory;
use crate::mm::merging::{Merging, Round};
use crate::types::digest_index::key_of;

/// A guard: while it is held, the scan of KSM does not run and no KSM page is looked up by its contents.
pub(crate) struct Pause<'a>(#[expect(dead_code, reason = "held")] LockGuard<'a, Round>);

impl<M: Machine> Merging<M> {
    /// Excludes the scan of KSM until the returned guard is dropped.
    pub(crate) fn pause(&self) -> Pause<'_> {
        Pause(self.round.lock())
    }

    /// Replaces the KSM frame `old` in the index by `new`, which has the same contents, and drops the index's reference
    /// to `old`.
    ///
    /// # Locks
    /// The caller holds the guard of `pause`.
    pub(crate) fn exchange(&self, memory: &Memory<M>, old: Frame, new: FrameRef<'_, M>) {
        let frames = memory.frames();
        let across = self.settings.across_nodes.load(Ordering::Relaxed);
        let node = (!across).then(|| frames.node_of(new.frame()));
        let key = key_of(frames.digest(new.frame()), node);
        let known = {
            let mut known = self.known.lock();
            let known_before = known.take(old);
            if known_before {
                // There is room, because the old frame has just left the index.
                known.merged.insert(key, new.into_raw());
            }
            known_before
        };
        if known {
            drop(frames.adopt(old));
        }
    }
}
