//! Reclaim of the swap cache.

use memwright_table::Machine;
use memwright_table::sync::pause_point;

use crate::mm::memory::Memory;
use crate::swap::Swap;
use crate::swap::place::Place;
use crate::types::stats::Row;

impl<M: Machine> Swap<M> {
    /// Frees frames of the swap cache that no entry maps, for example because the processes that mapped them have
    /// exited. First writes a page to its slot if the slot does not hold it. Begins where the previous call stopped.
    /// Ends once `wanted` frames are freed, or once all slots were examined. Returns the number of frames freed, and
    /// counts writes and failed writes in `memory`.
    pub fn shed_some(&self, memory: &Memory<M>, wanted: u64) -> u64 {
        let frames = memory.frames();
        let start = *self.shed_next.lock();
        let (mut place, mut has_turned, mut freed) = (start, false, 0);
        while freed < wanted {
            let (some, next) = self.cached_from(place);
            for slot in some.into_iter().flatten() {
                pause_point::<M::Threads>();
                let shed = self.shed(frames, slot);
                freed += u64::from(shed.freed);
                memory.count(Row::SwapWritten, u64::from(shed.written));
                memory.count(Row::SwapRefused, u64::from(shed.refused));
            }
            place = next.unwrap_or_default();
            let turns = next.is_none();
            if (has_turned && (turns || place >= start)) || (turns && start == Place::default()) {
                break;
            }
            has_turned |= turns;
        }
        *self.shed_next.lock() = place;
        freed
    }
}
