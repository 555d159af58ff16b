//! A hole that a folio of several pages fills (Linux 7.2 `mm/shmem.c`, `shmem_suitable_orders` and
//! `shmem_alloc_and_add_folio`).

use core::sync::atomic::Ordering;

use memwright_table::mistake::{Mistake, planted};
use memwright_table::{FrameKind, Machine};

use super::{Shmem, State, pages_of};
use crate::huge::{FolioOrders, block_around};
use crate::stats::Row;

impl<M: Machine> Shmem<M> {
    /// Fills the pages around `index` with zeroes, by the largest folio of these orders for which there is room, and
    /// memory. Its order, if there is one.
    pub(super) fn fill_hole(&self, index: u64, orders: FolioOrders) -> Option<u8> {
        if orders.is_empty() {
            return None;
        }
        let frames = self.memory.frames();
        let mut state = self.store.lock();
        for order in self.fitting(&state, index, orders).largest_first() {
            let counts = self.memory.huge().sizes.counts(order);
            let first = block_around(index, order).start;
            state.choose(&self.memory, first);
            let Ok(pages) = frames.allocate_zeroed_pages(order, FrameKind::Object) else {
                counts.shared_refused.fetch_add(1, Ordering::Relaxed);
                self.memory.count(Row::FolioFallbacks, 1);
                continue;
            };
            self.memory.count(Row::FramesZeroed, 1 << order);
            for (at, page) in (first..).zip(pages) {
                // All have one lowest node, so that only the first of them can be refused.
                state.pages.insert(at, page.frame()).ok()?;
                let _ = page.into_raw();
            }
            counts.shared_filled.fetch_add(1, Ordering::Relaxed);
            return Some(order);
        }
        None
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
