//! Folios whose pages are mapped one by one: 8 KiB to 2 MiB that were made together, lie together, and are frames
//! like any other.
//!
//! Each page has references of its own, and is given back when its last one goes: nothing of a folio of which a part
//! was unmapped is kept. What makes the frames a folio is one field in the metadata of each, its *order*: a block is
//! a folio as long as all its frames carry that order. A frame loses it when it is freed, moved, or copied on a write,
//! and with the first of them the rest are single pages without anybody telling them. So being a folio costs nothing
//! where pages are mapped, shared, protected and freed, and needs no lock: it can be asked, and it can be ended.
//!
//! Linux 7.2 keeps counts of the whole in such a case (`mm/rmap.c`, `include/linux/mm_types.h`, `struct folio`), and
//! frees it with the last of its pages or when a scan finds it in part unused (`deferred_split_folio`).

use core::iter::FusedIterator;
use core::sync::atomic::Ordering;

use super::meta::{State, UNLINKED};
use super::{FOLIO_ORDER, FrameKind, FrameRef, Frames, OutOfFrames};
use crate::addr::{Frame, FrameRange};
use crate::machine::Machine;

/// The frames of a new folio, each with its only reference. Those that nobody takes are freed.
pub struct FolioPages<'a, M: Machine> {
    frames: &'a Frames<M>,
    next: u32,
    end: u32,
}

impl<M: Machine> FolioPages<'_, M> {
    /// The first frame that was not taken yet.
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
    /// Allocates a folio of 2^`order` pages of `kind` that are to be mapped one by one. Their contents are undefined.
    ///
    /// Smaller folios and single pages do as well: no CPU gives up what its cache keeps for one.
    ///
    /// # Errors
    /// [`OutOfFrames`] if its node has no such block beyond the reserve. From which nodes the allocation was to be served
    /// holds for the next one then.
    ///
    /// # Panics
    /// If `order` is none of 1 to [`FOLIO_ORDER`], or `kind` is neither `Anonymous` nor `Object`.
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

    /// The same, filled with zeroes.
    ///
    /// # Errors
    /// As for [`allocate_pages`](Self::allocate_pages).
    ///
    /// # Panics
    /// As for it.
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

    /// A block that is free as such.
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

    /// The order of the folio that `frame` is a page of, mapped whole or by its pages: 0 for a single page. Whoever
    /// frees a page of it meanwhile makes the answer an old one.
    pub fn folio_order(&self, frame: Frame) -> u8 {
        let mut order = [0];
        self.folio_orders(frame.number(), &mut order);
        order[0]
    }

    /// The same for the frames from number `first` on, one for each place of `orders`; 0 where there is no memory. Each
    /// block is looked at once.
    pub fn folio_orders(&self, first: u32, orders: &mut [u8]) {
        let mut block = None;
        for (number, order) in (first..).zip(orders) {
            *order = self.folio_order_in(number, &mut block);
        }
    }

    /// The order of the folio of one frame. `block` is the last one that was looked at.
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

    /// Splits what there is of larger folios, mapped by their pages, from `first` to before `end` into folios of
    /// `order`; into single pages where that is 0. No entry changes.
    ///
    /// # Panics
    /// If the range is not one of whole folios of `order`.
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

/// A block of frames of which one says that it was made a page of a folio that begins there.
#[derive(Clone, Copy)]
struct Block {
    first: u32,
    /// What it says.
    state: State,
    /// Whether all say the same.
    is_folio: bool,
}

impl State {
    /// Whether a frame with this state is a page of a folio as one with the `other` is.
    fn is_page_beside(self, other: Self) -> bool {
        self.page_of() == other.page_of()
            && self.kind() == other.kind()
            && !self.has(State::IN_BLOCK)
    }
}
