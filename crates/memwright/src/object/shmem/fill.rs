//! A hole that a folio of several pages fills (Linux 7.2 `mm/shmem.c`, `shmem_suitable_orders` and
//! `shmem_alloc_and_add_folio`).

use memwright_table::Machine;

use super::{Shmem, State};
use crate::huge::{FolioOrders, FolioUse, block_around};

impl<M: Machine> Shmem<M> {
    /// Fills the pages around `index` with zeroes, by the largest folio of these orders that lies before page `end`, and for
    /// which there is room and memory. Its order, if there is one.
    pub(super) fn fill_hole(
        &self,
        state: &mut State<M>,
        index: u64,
        orders: FolioOrders,
        end: u64,
    ) -> Option<u8> {
        let memory = &*self.memory;
        let fitting = fitting(state, index, orders, end);
        let first = |order| block_around(index, order).start;
        let choose = |order| state.choose(memory, first(order));
        let (pages, order) = memory.largest_folio(FolioUse::Hole, fitting, choose)?;
        state
            .pages
            .insert_run(first(order), 1 << order, pages)
            .ok()?;
        memory.count_folio(FolioUse::Hole, order);
        Some(order)
    }
}

/// Those of `orders` whose block around page `index` has no page, in memory or in swap, has room, and does not reach beyond
/// `end`: what lies beyond the end of the object would be there for nobody.
fn fitting<M: Machine>(state: &State<M>, index: u64, orders: FolioOrders, end: u64) -> FolioOrders {
    orders.filter(|order| {
        let block = block_around(index, order);
        let next = state.pages.next(block.start);
        let is_hole = next.is_none_or(|(found, _)| found >= block.end);
        let is_within = block.end <= end;
        is_hole && is_within && state.pages.check_room(1 << order).is_ok()
    })
}
