//! Folios that are mapped by pages: 8 KiB to 2 MiB of contiguous frames that are allocated together, but otherwise are
//! ordinary frames.
//!
//! Each page has its own reference count and is freed when its last reference is dropped, so that a partially unmapped
//! folio retains no unused memory. The metadata of each frame records the *order* of its folio. A block is a folio as
//! long as all of its frames record that order. A frame loses the order when it is freed, migrated, or copied on write.
//! The remaining frames are single pages from then on, without a change to their metadata. So a folio adds no cost to
//! mapping, sharing, protecting and freeing its pages, and needs no lock. The only operations on such a folio as a
//! whole are a check of whether it still exists, and a split.
//!
//! Linux 7.2 keeps counts of the whole folio instead (`mm/rmap.c`, `include/linux/mm_types.h`, `struct folio`). It
//! frees the folio when its last page is freed, or when a scan finds it partially unused (`deferred_split_folio`).

use core::iter::FusedIterator;
use core::sync::atomic::Ordering;

use super::meta::{State, UNLINKED};
use super::{FOLIO_ORDER, FrameKind, FrameRef, Frames, OutOfFrames};
use crate::addr::{Frame, FrameRange};
use crate::machine::Machine;

/// An iterator over the frames of a new folio, each with its only reference. Dropping the iterator frees the frames
/// that it has not returned.
pub struct FolioPages<'a, M: Machine> {
    frames: &'a Frames<M>,
    next: u32,
    end: u32,
}

impl<M: Machine> FolioPages<'_, M> {
    /// The first frame that the iterator has not returned yet.
    #[must_use]
    pub fn first(&self) -> Frame {
        Frame::new(self.next)
    }
}

impl<'a, M: Machine> Iterator for FolioPages<'a, M> {
    type Item = FrameRef<'a, M>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        let frame = Frame::new(self.next);
        self.next += 1;
        Some(FrameRef::from_raw(self.frames, frame, false))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.next) as usize;
        (left, Some(left))
    }
}

impl<M: Machine> ExactSizeIterator for FolioPages<'_, M> {}
impl<M: Machine> FusedIterator for FolioPages<'_, M> {}

impl<M: Machine> Drop for FolioPages<'_, M> {
    fn drop(&mut self) {
        for page in self {
            drop(page);
        }
    }
}

impl<M: Machine> Frames<M> {
    /// Allocates a folio of 2^`order` pages of `kind`, to be mapped by pages. The contents are undefined.
    ///
    /// The caller can fall back to smaller folios and single pages, so the allocation does not drain CPU caches before
    /// it fails.
    ///
    /// # Errors
    /// [`OutOfFrames`] if the nodes that serve the allocation have no such block beyond the reserve. A choice of nodes
    /// that was made for this allocation then applies to the next one.
    ///
    /// # Panics
    /// If `order` is not from 1 to [`FOLIO_ORDER`], or `kind` is neither `Anonymous` nor `Object`.
    pub fn allocate_pages(
        &self,
        order: u8,
        kind: FrameKind,
    ) -> Result<FolioPages<'_, M>, OutOfFrames> {
        assert!(
            (1..=FOLIO_ORDER).contains(&order) && kind.is_paged(),
            "no such folio"
        );
        if self.is_to_fail() {
            return Err(OutOfFrames);
        }
        let head = self.take_free_block(order, kind).ok_or(OutOfFrames)?;
        let (next, end) = (head.number(), head.number() + (1 << order));
        self.cache().lock().count_allocated(kind, 1 << order);
        for number in next..end {
            let frame = Frame::new(number);
            let meta = self.meta(frame);
            if cfg!(debug_assertions) {
                self.check_poison(frame);
            }
            meta.set_state(meta.state().become_block(kind, 0).as_page_of(order));
            meta.set_link(UNLINKED);
            meta.owner.store(0, Ordering::Relaxed);
            meta.index.store(0, Ordering::Relaxed);
            meta.references.store(1, Ordering::Release);
        }
        Ok(FolioPages {
            frames: self,
            next,
            end,
        })
    }

    /// Like `allocate_pages`, and fills the pages with zeroes.
    ///
    /// # Errors
    /// [`OutOfFrames`], like [`allocate_pages`](Self::allocate_pages).
    ///
    /// # Panics
    /// As for `allocate_pages`.
    pub fn allocate_zeroed_pages(
        &self,
        order: u8,
        kind: FrameKind,
    ) -> Result<FolioPages<'_, M>, OutOfFrames> {
        let pages = self.allocate_pages(order, kind)?;
        self.machine.clear_frames(FrameRange {
            start: pages.first(),
            count: 1 << order,
        });
        Ok(pages)
    }

    /// Takes a free block from the nodes, without draining CPU caches. Returns `None` if there is no such block beyond
    /// the reserve.
    fn take_free_block(&self, order: u8, kind: FrameKind) -> Option<Frame> {
        let [node] = &self.nodes[..] else {
            return self.take_free_block_near(order, kind);
        };
        let reserve = if kind.may_use_reserve() {
            0
        } else {
            self.low_water.load(Ordering::Relaxed)
        };
        let mut node = node.lock();
        if node.free() < reserve.saturating_add(1 << order) {
            return None;
        }
        node.take(self.metas(), order)
    }

    /// Returns the order of the folio that contains `frame`, for folios that are mapped by huge entries or by pages, or
    /// 0 for a single page. The result can be out of date on return, because another CPU may free a page of the folio.
    pub fn folio_order(&self, frame: Frame) -> u8 {
        let mut order = [0];
        self.folio_orders(frame.number(), &mut order);
        order[0]
    }

    /// Stores in `orders` the folio orders of consecutive frames, beginning with the frame number `first`; 0 for a
    /// number without memory. Checks each block once.
    pub fn folio_orders(&self, first: u32, orders: &mut [u8]) {
        let mut block = None;
        for (number, order) in (first..=u32::MAX).zip(orders) {
            *order = self.folio_order_in(number, &mut block);
        }
    }

    /// Returns the folio order of the frame `number`. `block` caches the block that was checked last.
    fn folio_order_in(&self, number: u32, block: &mut Option<Block>) -> u8 {
        let metas = self.metas();
        let Some(meta) = metas.find(number) else {
            return 0;
        };
        if metas.folio_of(number).is_some() {
            return FOLIO_ORDER;
        }
        let state = meta.state();
        let order = state.page_of();
        if order == 0 {
            return 0;
        }
        let first = number & !((1 << order) - 1);
        let known = block.filter(|block| block.first == first && state.is_page_beside(block.state));
        let found = known.unwrap_or_else(|| {
            let is_of_it = |number| {
                let meta = metas.find(number);
                meta.is_some_and(|meta| meta.state().is_page_beside(state))
            };
            Block {
                first,
                state,
                is_folio: (first..first + (1 << order)).all(is_of_it),
            }
        });
        *block = Some(found);
        if found.is_folio { order } else { 0 }
    }

    /// Splits folios among the frames from `first` up to but not including `end`. Each folio that is mapped by pages
    /// and has a higher order than `order` becomes folios of `order`, or single pages if `order` is 0. Page-table
    /// entries do not change.
    ///
    /// # Panics
    /// If `first` or `end` is not a multiple of 2^`order`.
    pub fn split_folios(&self, first: Frame, end: Frame, order: u8) {
        let unit = (1 << order) - 1;
        assert!(
            first.number() & unit == 0 && end.number() & unit == 0,
            "a folio is cut"
        );
        for number in first.number()..end.number() {
            self.meta(Frame::new(number)).lower_page_of(order);
        }
    }
}

/// The frames of the folio with which one frame, the *known* frame, was allocated. The folio may no longer exist.
#[derive(Clone, Copy)]
struct Block {
    first: u32,
    /// The state of the known frame.
    state: State,
    /// Whether the folio still exists: all frames of the block are pages of it.
    is_folio: bool,
}

impl State {
    /// Whether a frame with this state and a frame with `other` are pages of one folio, provided that their numbers are
    /// in one block.
    fn is_page_beside(self, other: Self) -> bool {
        self.page_of() == other.page_of()
            && self.kind() == other.kind()
            && !self.has(State::IN_BLOCK)
    }
}
