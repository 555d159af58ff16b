//! Unmapping everything, at process exit.

use memwright_table::{Machine, Page, PageRange};

use super::{AddressSpace, LockFuture};
use crate::merge::UNSCANNED;

impl<M: Machine> AddressSpace<M> {
    /// Unmaps everything. This cannot fail.
    pub fn clear(&self) {
        let core = &self.core;
        let cpu = core.cpu();
        let map = {
            let mut areas = core.areas.write();
            areas.lock_future = LockFuture::No;
            if areas.map.len() != 0 {
                core.remove_entries(cpu, PageRange::new(Page::new(0), Page::USER_END));
            }
            areas.take_all(&core.memory)
        };
        // Drop `map` after the lock is released, because dropping the last user of an object can run file system code.
        drop(map);
        if core.merge_number() != UNSCANNED {
            core.memory.merging().leave(&core.memory, core);
        }
    }
}
