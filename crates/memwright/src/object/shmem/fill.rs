//! A hole that a folio of several pages fills (Linux 7.2 `mm/shmem.c`, `shmem_suitable_orders` and
//! `shmem_alloc_and_add_folio`).

use memwright_table::Machine;
use memwright_table::mistake::{Mistake, planted};

use super::{Shmem, State, pages_of};
use crate::huge::{FolioOrders, FolioUse, block_around};

impl<M: Machine> Shmem<M> {
    /// Fills the pages around `index` with zeroes, by the largest folio of these orders for which there is room, and
    /// memory. Its order, if there is one.
    pub(super) fn fill_hole(&self, index: u64, orders: FolioOrders) -> Option<u8> {
        if orders.is_empty() {
            return None;
        }
        let memory = &*self.memory;
        let mut state = self.store.lock();
        let fitting = self.fitting(&state, index, orders);
        let first = |order| block_around(index, order).start;
        let choose = |order| state.choose(memory, first(order));
        let (pages, order) = memory.largest_folio(FolioUse::Hole, fitting, choose)?;
        for (at, page) in (first(order)..).zip(pages) {
            // All have one lowest node, so that only the first of them can be refused.
            state.pages.insert(at, page.frame()).ok()?;
            let _ = page.into_raw();
        }
        memory.count_folio(FolioUse::Hole, order);
        Some(order)
    }

    /// Those of `orders` whose block around page `index` has no page, in memory or in swap, and does not reach beyond the
    /// end: what lies there would be there for nobody.
    fn fitting(&self, state: &State<M>, index: u64, orders: FolioOrders) -> FolioOrders {
        let end = pages_of(state.size);
        orders.filter(|order| {
            let block = block_around(index, order);
            let next = state.pages.next(block.start);
            let is_hole = next.is_none_or(|(found, _)| found >= block.end);
            is_hole && (block.end <= end || planted(Mistake::FolioBeyondObject))
        })
    }
}
