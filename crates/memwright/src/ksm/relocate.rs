//! Migration of a KSM page (Linux 7.2 `mm/ksm.c`, `folio_migrate_ksm`).

use memwright_table::sync::LockGuard;
use memwright_table::{Frame, FrameRef, Machine};

use crate::mm::memory::Memory;
use crate::mm::merging::{Merging, Round, Stable};

/// A guard that excludes the scan of KSM: while it is held, no KSM page is looked up by its contents.
pub(crate) struct Pause<'a, M: Machine>(
    #[expect(dead_code, reason = "held")] LockGuard<'a, Round, M::Threads>,
);

impl<M: Machine> Merging<M> {
    /// Excludes the scan of KSM until the returned guard is dropped.
    pub(crate) fn pause(&self) -> Pause<'_, M> {
        Pause(self.round.lock())
    }

    /// Replaces the KSM frame `old` in the index by `new`, which has the same contents, and drops the index's reference
    /// to `old`.
    ///
    /// # Locks
    /// The caller holds the guard of `pause`.
    pub(crate) fn exchange(&self, memory: &Memory<M>, old: Frame, new: FrameRef<'_, M>) {
        let key = self.key(memory, new.frame());
        let old_key = self.key(memory, old);
        let mut known = self.known.lock();
        let Some(places) = known.take(old_key, old) else {
            return;
        };
        // The index has room, because the old frame was just removed.
        let frame = new.into_raw();
        known.merged.insert(key, Stable { frame, places });
        drop(known);
        drop(memory.frames().adopt(old));
    }
}
