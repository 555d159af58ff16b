//! Allocates the largest folio, among several orders, for which memory suffices (Linux 7.2 `mm/memory.c`,
//! `alloc_anon_folio` and `alloc_swap_folio`, and `mm/shmem.c`, `shmem_alloc_and_add_folio`).

use core::sync::atomic::Ordering;
use memwright_table::{FOLIO_ORDER, FolioPages, Machine, OutOfFrames};

use crate::mm::memory::Memory;
use crate::types::folio_orders::FolioOrders;
use crate::types::folio_use::FolioUse;
use crate::types::stats::Row;

impl<M: Machine> Memory<M> {
    /// Allocates the largest folio of `orders` that is available. Returns its pages and its order. Calls `ahead` with
    /// the order before each attempt, so that the caller can select the nodes.
    pub(crate) fn largest_folio(
        &self,
        purpose: FolioUse,
        orders: FolioOrders,
        mut ahead: impl FnMut(u8),
    ) -> Option<(FolioPages<'_, M>, u8)> {
        let (frames, kind) = (self.frames(), purpose.kind());
        for order in orders.largest_first() {
            ahead(order);
            let pages = if purpose.is_zeroed() {
                frames.allocate_zeroed_pages(order, kind)
            } else {
                frames.allocate_pages(order, kind)
            };
            match pages {
                Ok(pages) => {
                    if purpose.is_zeroed() {
                        self.count(Row::FramesZeroed, 1 << order);
                    }
                    return Some((pages, order));
                }
                Err(OutOfFrames) => {
                    let counts = self.huge().sizes.counts(order);
                    counts.missed(purpose).fetch_add(1, Ordering::Relaxed);
                    if purpose.is_zeroed() {
                        self.count(Row::FolioFallbacks, 1);
                    }
                }
            }
        }
        None
    }

    /// Counts a folio of order `order` that now is in use for `purpose`.
    pub(crate) fn count_folio(&self, purpose: FolioUse, order: u8) {
        let counts = self.huge().sizes.counts(order);
        counts.made(purpose).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a page-table entry that maps a complete huge page of shared memory (`do_set_pmd`).
    pub(crate) fn count_mapped_whole(&self) {
        let counts = self.huge().sizes.counts(FOLIO_ORDER);
        counts.shared_mapped.fetch_add(1, Ordering::Relaxed);
    }
}
