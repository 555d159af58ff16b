//! Stack expansion: a fault below an area that grows down (Linux 7.2 `mm/vma.c`, `expand_downwards`).

use memwright_table::{Machine, PAGE_SIZE, Page};

use crate::mm::core::Core;
use crate::types::error::FaultError;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::room::STACK_GUARD_PAGES;

impl<M: Machine> Core<M> {
    /// Expands the area above `page` down to `page`, if that area is a stack and the limits permit it.
    #[cold]
    pub(crate) fn grow_stack(&self, page: Page) -> Result<(), FaultError> {
        let mut areas = self.areas.write();
        let Some(position) = areas.map.at_or_after(page) else {
            return Err(FaultError::NoArea);
        };
        let area = areas.map.get(position);
        if area.start() <= page {
            // Another thread has mapped or expanded an area here meanwhile: the fault looks the area up again.
            return Ok(());
        }
        if !area.flags().contains(AreaFlags::GROWSDOWN) {
            return Err(FaultError::NoArea);
        }
        let (rights, flags) = (area.rights, area.flags);
        let more = area.start().number() - page.number();
        let size = area.end().number() - page.number();
        if page < self.bounds().start || area.offset < more {
            return Err(FaultError::NoArea);
        }
        if let Some(below) = areas.map.previous(position) {
            let below = areas.map.get(below);
            let guarded = !below.rights.is_none() && !below.flags().contains(AreaFlags::GROWSDOWN);
            if guarded && page.number() - below.end().number() < STACK_GUARD_PAGES {
                return Err(FaultError::StackLimit);
            }
        }
        if size > areas.limits.stack / PAGE_SIZE as u64 {
            return Err(FaultError::StackLimit);
        }
        let allowed = areas.check_growth(rights, flags, more, 0).is_ok()
            && (!flags.contains(AreaFlags::LOCKED) || areas.check_locked(more).is_ok());
        if !allowed {
            return Err(FaultError::StackLimit);
        }
        if flags.contains(AreaFlags::ACCOUNTED) {
            self.memory
                .promise(more)
                .map_err(|_| FaultError::StackLimit)?;
        }
        areas.map.grow_down(position, page);
        areas.count_in(rights, flags, more);
        self.memory.count(Row::StackGrowth, 1);
        Ok(())
    }
}
