//! Filling a hole with a folio of several pages (Linux 7.2 `mm/shmem.c`, `shmem_suitable_orders` and
//! `shmem_alloc_and_add_folio`).

use memwright_table::Machine;

use crate::shmem::Shmem;
use crate::store::page_store::State;
use crate::types::folio_orders::{FolioOrders, block_around};
use crate::types::folio_use::FolioUse;

impl<M: Machine> Shmem<M> {
    /// Fills the hole around page `index` with a zeroed folio: the largest of `orders` whose naturally aligned block is
    /// empty and ends at or before page `end`. Returns the order, or `None` if the limit of the mount is too low or no
    /// frames are free for a folio.
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

/// Returns those of `orders` whose naturally aligned block around page `index` is empty, does not extend past page
/// `end`, and has no more pages than the limit of the mount still allows.
fn fitting<M: Machine>(state: &State<M>, index: u64, orders: FolioOrders, end: u64) -> FolioOrders {
    orders.filter(|order| {
        let block = block_around(index, order);
        let next = state.pages.next(block.start);
        let is_hole = next.is_none_or(|(found, _)| found >= block.end);
        let is_within = block.end <= end;
        is_hole && is_within && state.pages.check_room(1 << order).is_ok()
    })
}
