//! Allocates the largest folio, among several orders, for which memory suffices (Linux 7.2 `mm/memory.c`,
//! `alloc_anon_folio` and `alloc_swap_folio`, and `mm/shmem.c`, `shmem_alloc_and_add_folio`).

use core::sync::atomic::{AtomicU64, Ordering};

use memwright_table::{FOLIO_ORDER, FolioPages, FrameKind, Machine, OutOfFrames};

use super::{FolioOrders, SizeCounts};
use crate::memory::Memory;
use crate::stats::Row;

/// The purpose of a folio, which determines its frame kind and its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolioUse {
    /// The first store to private memory.
    FirstTouch,
    /// A hole in an object.
    Hole,
    /// Swap-in of pages of this kind.
    SwapIn(FrameKind),
}

impl FolioUse {
    const fn kind(self) -> FrameKind {
        match self {
            Self::FirstTouch => FrameKind::Anonymous,
            Self::Hole => FrameKind::Object,
            Self::SwapIn(kind) => kind,
        }
    }

    /// Whether the pages must be zeroed. Pages for swap-in are overwritten.
    const fn is_zeroed(self) -> bool {
        match self {
            Self::FirstTouch | Self::Hole => true,
            Self::SwapIn(_) => false,
        }
    }
}

impl SizeCounts {
    const fn made(&self, purpose: FolioUse) -> &AtomicU64 {
        match purpose {
            FolioUse::FirstTouch => &self.filled,
            FolioUse::Hole => &self.shared_filled,
            FolioUse::SwapIn(_) => &self.swapped_in,
        }
    }

    const fn missed(&self, purpose: FolioUse) -> &AtomicU64 {
        match purpose {
            FolioUse::FirstTouch => &self.refused,
            FolioUse::Hole => &self.shared_refused,
            FolioUse::SwapIn(_) => &self.swapped_in_smaller,
        }
    }
}

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

    /// Counts a folio of `order` that was put to use.
    pub(crate) fn count_folio(&self, purpose: FolioUse, order: u8) {
        let counts = self.huge().sizes.counts(order);
        counts.made(purpose).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an entry that maps a complete huge page of shared memory (`do_set_pmd`).
    pub(crate) fn count_mapped_whole(&self) {
        let counts = self.huge().sizes.counts(FOLIO_ORDER);
        counts.shared_mapped.fetch_add(1, Ordering::Relaxed);
    }
}
