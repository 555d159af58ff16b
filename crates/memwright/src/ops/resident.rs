//! Reporting which pages are in memory (Linux 7.2 `mm/mincore.c`).

use memwright_table::sync::PausePoints;
use memwright_table::{Entry, Machine, Page, PageRange, VirtAddr};

use crate::mm::check;
use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::mm::theme::Residency;
use crate::types::error::AdviseError;
use crate::vma::area::AreaFlags;

/// The number of pages that are checked between two scheduling points.
const LOOKS: u32 = 512;

impl<M: Machine> Residency<'_, M> {
    /// Calls `visitor` with each page of the `length` bytes from `address` on, and with true if an access would find
    /// the page in memory.
    ///
    /// # Errors
    /// [`AdviseError::Misaligned`], [`AdviseError::OutOfRange`], or [`AdviseError::Hole`] where nothing is mapped.
    /// `visitor` was called with the pages below the hole.
    pub fn resident(
        &self,
        address: VirtAddr,
        length: u64,
        visitor: &mut dyn FnMut(Page, bool),
    ) -> Result<(), AdviseError> {
        let core = &*self.space.core;
        let range = check::pages(address, length)?;
        let mut points = PausePoints::<M::Threads>::every(LOOKS);
        let mut next = range.start;
        while next < range.end {
            let areas = core.areas.read(core.cpu());
            let Some(area) = areas.map.find(next) else {
                return Err(AdviseError::Hole(next.address()));
            };
            let part = PageRange::new(next, area.end().min(range.end));
            for page in part.iter() {
                visitor(page, core.is_resident(area, page));
                points.round();
            }
            next = part.end;
        }
        Ok(())
    }
}

impl<M: Machine> Core<M> {
    fn is_resident(&self, area: &Area<M>, page: Page) -> bool {
        // The cursor is dropped in this statement, because its page-table lock must not be held when the object's lock
        // is acquired.
        let entry = self.table.look(PageRange::single(page)).peek_raw();
        match entry {
            Entry::Present(_) | Entry::Migrating(_) => true,
            Entry::Swapped(_) => false,
            // A hugetlb page counts as resident only if it is mapped (`mincore_hugetlb`).
            Entry::Empty | Entry::Marker(_) if area.flags().contains(AreaFlags::HUGETLB) => false,
            Entry::Empty | Entry::Marker(_) => area.object().is_some_and(|object| {
                let cached = object.cached(&self.memory, area.offset_of(page));
                cached
                    .map(|frame| self.memory.frames().adopt(frame))
                    .is_some()
            }),
        }
    }
}
