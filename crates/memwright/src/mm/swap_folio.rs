//! Decides which of the pages that are swapped in together are read into folios, and allocates the folios (Linux 7.2
//! `mm/memory.c`, `alloc_swap_folio`).
//!
//! A run of pages with consecutive addresses and slots is cut as a buddy allocator would cut it: each block is the
//! largest that begins at an aligned address and ends within the run. The alignment of the run's slots does not matter.
//! Linux requires the slots to be aligned like the pages, because its swap cache indexes a folio by a naturally aligned
//! range of slots during the read. Here the record of each slot names a single frame, and devices are read page by
//! page. To require aligned slots would gain nothing, and would exclude every run whose first slot is not aligned like
//! its address.

use memwright_table::{FolioPages, FrameKind, FrameRef, Machine, OutOfFrames};

use crate::mm::memory::Memory;
use crate::types::folio_orders::{FolioOrders, SMALLEST_ORDER};
use crate::types::folio_use::FolioUse;
use crate::types::stats::Row;
use crate::types::swap_window::MOST;

/// The order of the largest folio for swap-in.
const LARGEST_ORDER: u8 = MOST.ilog2() as u8;

/// Returns the order of the folio that begins at page number `number`, the first of `left` adjacent pages. The order is
/// at most `most`. It is 0 for a single page.
fn order_at(number: u64, left: u64, most: u8) -> u8 {
    let aligned = number.trailing_zeros();
    let order = left.max(1).ilog2().min(aligned).min(most.into()) as u8;
    if order < SMALLEST_ORDER { 0 } else { order }
}

/// Allocates the frames for pages that are swapped in together.
pub(crate) struct ComingFrames<'a, M: Machine> {
    memory: &'a Memory<M>,
    kind: FrameKind,
    /// The largest order to try; lowered once no block of a higher order is free.
    most: u8,
    /// The remaining pages of the last folio.
    pages: Option<FolioPages<'a, M>>,
}

impl<'a, M: Machine> ComingFrames<'a, M> {
    pub(crate) const fn new(memory: &'a Memory<M>, kind: FrameKind) -> Self {
        Self {
            memory,
            kind,
            most: LARGEST_ORDER,
            pages: None,
        }
    }

    /// Returns the frame for page number `number`, which determines how a folio is aligned. The page is the first of
    /// `left` pages that are still to be read and have consecutive addresses and slots.
    ///
    /// # Errors
    /// No frame is free.
    #[inline]
    pub(crate) fn next(&mut self, number: u64, left: u64) -> Result<FrameRef<'a, M>, OutOfFrames> {
        if let Some(frame) = self.pages.as_mut().and_then(Iterator::next) {
            return Ok(frame);
        }
        self.first_of_next(number, left)
    }

    /// Allocates the largest folio available and returns its first frame, or allocates a single frame.
    fn first_of_next(&mut self, number: u64, left: u64) -> Result<FrameRef<'a, M>, OutOfFrames> {
        let (memory, purpose) = (self.memory, FolioUse::SwapIn(self.kind));
        let largest = order_at(number, left, self.most);
        let orders = FolioOrders::OF_PAGES.filter(|order| order <= largest);
        if orders.is_empty() {
            return memory.frames().allocate(0, self.kind);
        }
        let Some((pages, order)) = memory.largest_folio(purpose, orders, |_| {}) else {
            self.most = 0;
            return memory.frames().allocate(0, self.kind);
        };
        if order < largest {
            self.most = order;
        }
        memory.count_folio(purpose, order);
        memory.count(Row::SwapFolios, 1);
        self.pages.insert(pages).next().ok_or(OutOfFrames)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Cuts the run of `count` pages from `first` on into blocks, and returns the number of pages of each block.
    fn cut(first: u64, count: u64, most: u8) -> Vec<u64> {
        let (mut number, end) = (first, first + count);
        let mut blocks = Vec::new();
        while number < end {
            let pages = 1 << order_at(number, end - number, most);
            blocks.push(pages);
            number += pages;
        }
        blocks
    }

    #[test]
    fn a_run_is_cut_where_a_buddy_would_cut_it() {
        #[rustfmt::skip]
        let rows: [(u64, u64, u8, &[u64]); 15] = [
            (0,    16, 4, &[16]),
            (16,   16, 4, &[16]),
            (0,    15, 4, &[8, 4, 1, 1, 1]),
            (8,    16, 4, &[8, 8]),
            (4,    16, 4, &[4, 8, 4]),
            (12,   16, 4, &[4, 8, 4]),
            (13,   16, 4, &[1, 1, 1, 8, 4, 1]),
            (14,   4,  4, &[1, 1, 1, 1]),
            (3,    5,  4, &[1, 4]),
            (2,    2,  4, &[1, 1]),
            (1023, 1,  4, &[1]),
            // A lower maximum order, as when no larger folio is available.
            (0,    16, 3, &[8, 8]),
            (0,    16, 2, &[4, 4, 4, 4]),
            (4,    6,  1, &[1, 1, 1, 1, 1, 1]),
            (0,    4,  0, &[1, 1, 1, 1]),
        ];
        for (first, count, most, blocks) in rows {
            assert_eq!(
                cut(first, count, most),
                blocks,
                "{count} from {first}, {most}"
            );
        }
    }
}
