//! Folios that are mapped by pages: 8 KiB to 2 MiB of contiguous frames that are allocated together and are otherwise
//! ordinary frames.
//!
//! Each page has its own references and is freed when the last one is dropped, so that a partially unmapped folio
//! retains no memory. What makes the frames a folio is one field in the metadata of each, its *order*: a block is a
//! folio as long as all of its frames have that order. A frame loses the order when it is freed, migrated, or copied on
//! write. From then on the remaining frames are single pages, without a change to their metadata. So a folio adds no
//! cost to mapping, sharing, protecting and freeing its pages, and needs no lock: code can only query whether a folio
//! exists, and split it.
//!
//! Linux 7.2 keeps counts of the whole folio in this case (`mm/rmap.c`, `include/linux/mm_types.h`, `struct folio`). It
//! frees the folio when its last page is freed, or when a scan finds it partially unused (`deferred_split_folio`).

use core::iter::FusedIterator;
use core::sync::atomic::Ordering;

use super::meta::{State, UNLINKED};
use super::{FOLIO_ORDER, FrameKind, FrameRef, Frames, OutOfFrames};
use crate::addr::{Frame, FrameRange};
use crate::machine::Machine;

/// The frames of a new folio, each with its only reference. Dropping the iterator frees the frames that were not taken.
pub struct FolioPages<'a, M: Machine> {
    frames: &'a Frames<M>,
    next: u32,
    end: u32,
}

impl<M: Machine> FolioPages<'_, M> {
    /// The first frame that has not been taken yet.
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
    /// Allocates a folio of 2^`order` pages of `kind`, to be mapped by pages. Their contents are undefined.
    ///
    /// The caller can fall back to smaller folios and single pages, so the allocation does not drain CPU caches before
    /// it fails.
    ///
    /// # Errors
    /// [`OutOfFrames`] if the nodes that serve the allocation have no such block beyond the reserve. A choice of nodes
    /// made for this allocation then applies to the next one.
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

    /// Takes a block that is free on a node, without draining caches. Returns `None` if there is none beyond the
    /// reserve.
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

    /// Returns the order of the folio that contains `frame`, whether the folio is mapped by huge entries or by pages,
    /// or 0 for a single page. The answer is out of date as soon as a page of the folio is freed.
    pub fn folio_order(&self, frame: Frame) -> u8 {
        let mut order = [0];
        self.folio_orders(frame.number(), &mut order);
        order[0]
    }

    /// Stores in `orders` the folio orders of consecutive frames, beginning with number `first`; 0 where there is no
    /// memory. Each block is checked once.
    pub fn folio_orders(&self, first: u32, orders: &mut [u8]) {
        let mut block = None;
        for (number, order) in (first..).zip(orders) {
            *order = self.folio_order_in(number, &mut block);
        }
    }

    /// The folio order of one frame. `block` caches the block that was checked last.
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

    /// Splits each folio from `first` to before `end` that is mapped by pages and has a higher order than `order` into
    /// folios of `order`, or into single pages if that is 0. No entry changes.
    ///
    /// # Panics
    /// If the range does not consist of whole folios of `order`.
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

/// The frames of a folio as part of which one of them, the *known* frame, was allocated. The folio may no longer exist.
#[derive(Clone, Copy)]
struct Block {
    first: u32,
    /// The state of the known frame.
    state: State,
    /// Whether all frames of the block still are pages of the folio.
    is_folio: bool,
}

impl State {
    /// Whether frames with this state and with `other` are pages of one folio, given that their numbers are in one
    /// block.
    fn is_page_beside(self, other: Self) -> bool {
        self.page_of() == other.page_of()
            && self.kind() == other.kind()
            && !self.has(State::IN_BLOCK)
    }
}
