//! The largest folio of pages that there is memory for (Linux 7.2 `mm/memory.c`, `alloc_anon_folio` and
//! `alloc_swap_folio`, and `mm/shmem.c`, `shmem_alloc_and_add_folio`).

use core::sync::atomic::{AtomicU64, Ordering};

use memwright_table::{FOLIO_ORDER, FolioPages, FrameKind, Machine, OutOfFrames};

use super::{FolioOrders, SizeCounts};
use crate::memory::Memory;
use crate::stats::Row;

/// What a folio is for: as that it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolioUse {
    /// Private memory that is stored to for the first time.
    FirstTouch,
    /// A hole of an object.
    Hole,
    /// Pages of this kind that come back from swap.
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

    /// Whether pages are zero at first, as a program sees them. What comes back is written over.
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
    /// The pages of the largest folio of these orders for which there are frames, and its order. `ahead` says before each
    /// attempt of which nodes those are to be.
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

    /// Counts a folio of `order` that is where it is for.
    pub(crate) fn count_folio(&self, purpose: FolioUse, order: u8) {
        let counts = self.huge().sizes.counts(order);
        counts.made(purpose).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an entry that maps a whole huge page of shared memory now, not before (`do_set_pmd`).
    pub(crate) fn count_mapped_whole(&self) {
        let counts = self.huge().sizes.counts(FOLIO_ORDER);
        counts.shared_mapped.fetch_add(1, Ordering::Relaxed);
    }
}
