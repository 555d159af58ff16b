//! Which pages that come back together come back as folios, and of what frames those are (Linux 7.2 `mm/memory.c`,
//! `alloc_swap_folio`).
//!
//! Pages that follow one another in memory and on the device are cut as a buddy allocator would cut them: each block is
//! the largest that is aligned in memory where it begins and ends with them. Where it lies on the device does not
//! matter. Linux wants the slots aligned as the pages are, for its swap cache keeps a folio that is on its way under
//! a naturally aligned run of slots. Here a page that one entry alone names never passes through a cache, and devices
//! are asked for it page by page: aligned slots would win nothing, and would lose every run whose first slot is not the
//! one that matches its address.

use memwright_table::{FolioPages, FrameKind, FrameRef, Machine, OutOfFrames};

use super::MOST;
use crate::huge::{FolioOrders, FolioUse, SMALLEST_ORDER};
use crate::memory::Memory;
use crate::stats::Row;

/// The order of the largest folio that comes back.
const LARGEST_ORDER: u8 = MOST.ilog2() as u8;

/// The order of the folio with which `left` pages begin, the first of them with this number, if none is to be larger
/// than `most`: 0 for a single page.
fn order_at(number: u64, left: u64, most: u8) -> u8 {
    let aligned = number.trailing_zeros();
    let order = left.max(1).ilog2().min(aligned).min(most.into()) as u8;
    if order < SMALLEST_ORDER { 0 } else { order }
}

/// Frames for pages that come back together.
pub(crate) struct ComingFrames<'a, M: Machine> {
    memory: &'a Memory<M>,
    kind: FrameKind,
    /// No block of a higher order is free.
    most: u8,
    /// What is left of the last folio.
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

    /// The frame of the page with this number, whose number decides how it is aligned. It is one of `left` that are still
    /// to come and lie in memory and on the device side by side, and the first of them.
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

    /// The first frame of the largest folio of which there is one, or a single one.
    fn first_of_next(&mut self, number: u64, left: u64) -> Result<FrameRef<'a, M>, OutOfFrames> {
        let (memory, purpose) = (self.memory, FolioUse::SwapIn(self.kind));
        let largest = order_at(number, left, self.most);
        let orders = FolioOrders::OF_PAGES.filter(|order| order <= largest);
        let Some((pages, order)) = memory.largest_folio(purpose, orders, |_| {}) else {
            if !orders.is_empty() {
                self.most = 0;
            }
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

    /// Pages of each block of a run.
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
            // Larger ones are not to be had.
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
