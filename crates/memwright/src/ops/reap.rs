//! Reaping the memory of a process that is about to exit (Linux 7.2 `mm/oom_kill.c`, `__oom_reap_task_mm`).

use memwright_table::{Machine, Page};

use crate::mm::space::AddressSpace;
use crate::types::error::UnmapError;
use crate::vma::area::AreaFlags;
use crate::vma::bin::AreaBin;

impl<M: Machine> AddressSpace<M> {
    /// Unmaps all private memory. The caller must ensure that no thread of the process returns to user mode, because
    /// its next access would fault. Linux keeps the areas and marks them as unstable instead.
    ///
    /// # Errors
    /// [`UnmapError::OutOfMemory`]. Part of the memory can then already be unmapped.
    pub fn reap(&self) -> Result<(), UnmapError> {
        let core = &self.core;
        let mut bin = AreaBin::new();
        let mut areas = core.areas.write();
        let mut position = areas.map.at_or_after(Page::new(0));
        while let Some(found) = position {
            let area = areas.map.get_mut(found);
            // A seal restricts only the program, not the kernel.
            area.flags -= AreaFlags::SEALED;
            let range = area.range();
            if area.is_shared() {
                position = areas.map.next(found);
                continue;
            }
            core.unmap_range(&mut areas, range, &mut bin)?;
            position = areas.map.at_or_after(range.end);
        }
        drop(areas);
        drop(bin);
        Ok(())
    }
}
