//! The buddy allocator of a node: lists of free blocks, one for each order, linked through the metadata.

use core::sync::atomic::Ordering;

use super::FrameKind;
use super::meta::{END, Meta, State};
use super::order::MAX_ORDER;
use crate::addr::Frame;
use crate::arch::word;

/// The metadata of every frame from `lowest` on.
#[derive(Clone, Copy)]
pub(crate) struct Metas<'a> {
    pub(super) lowest: u32,
    all: &'a [Meta],
}

impl<'a> Metas<'a> {
    #[inline]
    pub(super) const fn new(lowest: u32, all: &'a [Meta]) -> Self {
        Self { lowest, all }
    }

    /// The metadata of frame `number`, which is at least the lowest managed one and at most the highest. Callers get
    /// the number from a table, a list or a reference. A caller with a number of unknown origin calls
    /// [`find`](Self::find) instead.
    #[inline]
    pub(crate) fn get(self, number: u32) -> &'a Meta {
        &self.all[number.wrapping_sub(self.lowest) as usize]
    }

    /// Returns the metadata of the frame that the entry `word` of a last-level table maps with rights. Returns `None`
    /// if the entry does not map a page with rights or holds no reference.
    #[inline(always)]
    pub(crate) fn of_entry(self, word: u64) -> Option<&'a Meta> {
        self.all
            .get(word::index_of_counted(word, self.lowest) as usize)
    }

    /// Returns the frame to which `meta`, an element of this metadata, belongs.
    pub(crate) fn frame_of(self, meta: &Meta) -> Frame {
        let offset = core::ptr::from_ref(meta) as usize - self.all.as_ptr() as usize;
        Frame::new(
            self.lowest
                .wrapping_add((offset / size_of::<Meta>()) as u32),
        )
    }

    /// The number of the last frame plus 1.
    pub(super) fn end(self) -> u32 {
        self.lowest + self.all.len() as u32
    }

    #[inline]
    pub(super) fn find(self, number: u32) -> Option<&'a Meta> {
        self.all.get(number.wrapping_sub(self.lowest) as usize)
    }
}

/// The buddy allocator of one node. The caller of each method holds the node's lock.
pub(super) struct Buddy {
    node: u8,
    /// The first free block of each order.
    heads: [u32; MAX_ORDER as usize + 1],
    free: u64,
    /// The number of frames among `free` that are earmarked for page tables
    /// ([`Frames::earmark_tables`](super::Frames)).
    earmarked: u64,
}

impl Buddy {
    pub(super) const fn new(node: u8) -> Self {
        Self {
            node,
            heads: [END; MAX_ORDER as usize + 1],
            free: 0,
            earmarked: 0,
        }
    }

    /// The number of frames in the free lists that are not earmarked. Frames in CPU caches are not included.
    pub(super) fn free(&self) -> u64 {
        self.free - self.earmarked
    }

    /// Earmarks up to `frames` free frames, which [`take`](Self::take) then does not take. Returns the number of frames
    /// that it earmarked.
    pub(super) fn earmark(&mut self, frames: u64) -> u64 {
        let earmarked = frames.min(self.free());
        self.earmarked += earmarked;
        earmarked
    }

    /// Releases up to `frames` earmarks. Returns the number of earmarks that it released.
    pub(super) fn release(&mut self, frames: u64) -> u64 {
        let taken = frames.min(self.earmarked);
        self.earmarked -= taken;
        taken
    }

    /// Removes a block of `order` from the free lists. It is the part with the lowest address of the smallest free
    /// block that is large enough. If several free blocks have that size, it is a part of the one that was freed last,
    /// so the result is deterministic. Returns `None` if no free block is large enough, or if the block would use
    /// earmarked frames.
    pub(super) fn take(&mut self, metas: Metas<'_>, order: u8) -> Option<Frame> {
        if self.free() < 1 << order {
            return None;
        }
        let found = (order..=MAX_ORDER).find(|&o| self.heads[o as usize] != END)?;
        let number = self.heads[found as usize];
        self.unlink(metas, number, found);
        for half in (order..found).rev() {
            self.link(metas, number + (1 << half), half);
        }
        self.free -= 1 << order;
        Some(Frame::new(number))
    }

    /// Removes the smallest free block from the free lists, or only a part of it if it has more than `limit` frames.
    /// Returns its first frame and its size in frames.
    pub(super) fn take_some(&mut self, metas: Metas<'_>, limit: u32) -> Option<(Frame, u32)> {
        let smallest = (0..=MAX_ORDER).find(|&o| self.heads[o as usize] != END)?;
        let order = smallest.min(limit.ilog2() as u8);
        Some((self.take(metas, order)?, 1 << order))
    }

    /// Frees a block and merges it with its free buddies.
    pub(super) fn put(&mut self, metas: Metas<'_>, frame: Frame, order: u8) {
        self.free += 1 << order;
        let (mut number, mut order) = (frame.number(), order);
        while order < MAX_ORDER {
            let buddy = number ^ (1 << order);
            if !self.is_free_block(metas, buddy, order) {
                break;
            }
            self.unlink(metas, buddy, order);
            number = number.min(buddy);
            order += 1;
        }
        self.link(metas, number, order);
    }

    /// Frees the frames from `start` up to but not including `end`, in the largest blocks that they form. Goes from the
    /// highest address down, so that the lowest block, which is freed last, is allocated first.
    pub(super) fn put_run(&mut self, metas: Metas<'_>, start: u32, end: u32) {
        let mut end = end;
        while end > start {
            // The order of the largest aligned block that ends at `end` and does not begin before `start`.
            let most = (end.trailing_zeros()).min((end - start).ilog2());
            let order = (most as u8).min(MAX_ORDER);
            end -= 1 << order;
            self.put(metas, Frame::new(end), order);
        }
    }

    /// Returns whether a block of `order` that starts at `number` is in a list of this node. A frame in a CPU's cache
    /// is free, too, but it cannot be unlinked here: it is in no list of a node, and the cache's list has no back
    /// links.
    #[inline]
    fn is_free_block(&self, metas: Metas<'_>, number: u32, order: u8) -> bool {
        let listed = State::new(FrameKind::Free, order, self.node).with(State::LISTED);
        metas
            .find(number)
            .is_some_and(|meta| meta.state().without(State::POISONED) == listed)
    }

    #[inline]
    fn link(&mut self, metas: Metas<'_>, number: u32, order: u8) {
        let head = self.heads[order as usize];
        let meta = metas.get(number);
        let state = meta.state().become_block(FrameKind::Free, order);
        meta.set_state(state.with(State::LISTED));
        meta.set_link(head);
        meta.back.store(END, Ordering::Relaxed);
        if head != END {
            metas.get(head).back.store(number, Ordering::Relaxed);
        }
        self.heads[order as usize] = number;
    }

    #[inline]
    fn unlink(&mut self, metas: Metas<'_>, number: u32, order: u8) {
        let meta = metas.get(number);
        let (next, previous) = (meta.link(), meta.back.load(Ordering::Relaxed));
        if previous == END {
            self.heads[order as usize] = next;
        } else {
            metas.get(previous).set_link(next);
        }
        if next != END {
            metas.get(next).back.store(previous, Ordering::Relaxed);
        }
        meta.set_state(meta.state().without(State::LISTED));
    }
}
