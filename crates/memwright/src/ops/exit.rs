//! Process exit: unmapping all memory, and dropping the address space and the memory manager.

use memwright_table::{Architecture, Machine};

use crate::mm::areas::LockFuture;
use crate::mm::memory::Memory;
use crate::mm::space::AddressSpace;
use crate::types::memcg::Memcg;

impl<M: Machine> Drop for Memory<M> {
    fn drop(&mut self) {
        self.drop_huge_zero_frame();
        self.drop_merged();
        drop(self.frames.adopt(self.zero));
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Unmaps all memory. This cannot fail.
    pub fn clear(&self) {
        let core = &self.core;
        let cpu = core.cpu();
        let map = {
            let mut areas = core.areas.write();
            areas.lock_future = LockFuture::No;
            if areas.map.len() != 0 {
                core.remove_entries(cpu, M::Arch::USER);
            }
            areas.take_all(&core.memory)
        };
        // Drop the areas after the lock is released: dropping the last user of an object can run file system code.
        drop(map);
        if core.merge_number.may_have_merged() {
            core.memory.merging().leave(&core.memory, core);
        }
    }
}

impl<M: Machine> Drop for AddressSpace<M> {
    fn drop(&mut self) {
        self.clear();
        self.core.set_memcg(Memcg::NOBODY);
        self.core.memory.spaces().leave(&self.core);
    }
}
