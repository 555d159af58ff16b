//! Drops the references that the entries of a last-level table hold.
//!
//! No CPU uses the table any more, so nothing has to be flushed between the removal of an entry and the drop of its
//! reference. The frames therefore need not be linked in the list of a gather first.

use core::sync::atomic::Ordering;

use super::cache::Cache;
use super::frames::Frames;
use super::kind::FrameKind;
use super::meta::{END, Left, Meta, State};
use crate::addr::Frame;
use crate::arch::TableSlot;
use crate::machine::{Machine, SlotOf};
use crate::sync::{LockGuard, Step, step};

/// Drops references to many frames while the cache of the CPU is locked.
pub(crate) struct Dropping<'a, M: Machine> {
    frames: &'a Frames<M>,
    cache: LockGuard<'a, Cache, M::Threads>,
    /// The state of the pages that [`drop_alike`](Self::drop_alike) handles: anonymous pages of single frames of the
    /// first node without a copy in swap.
    state: State,
    /// The number of references to pages of objects that were dropped.
    objects: u64,
    /// The number of pages of objects that are no longer mapped.
    unmapped: i64,
    /// The first of the frames without references that have copies in swap slots, which are linked.
    copied: u32,
}

impl<'a, M: Machine> Dropping<'a, M> {
    #[inline]
    pub(crate) fn new(frames: &'a Frames<M>) -> Self {
        Self {
            frames,
            cache: frames.cache().lock(),
            state: State::new(FrameKind::Anonymous, 0, 0),
            objects: 0,
            unmapped: 0,
            copied: END,
        }
    }

    /// Drops the reference of each of the last `slots`, as long as they map pages with rights whose frames have the
    /// same state. Returns the slots before them. Goes backwards, so that the frame of the first page is allocated
    /// first again. Does not write the slots.
    #[inline(never)]
    pub(crate) fn drop_alike<'s>(&mut self, slots: &'s [SlotOf<M>]) -> &'s [SlotOf<M>] {
        let metas = self.frames.metas();
        let state = self.state;
        let mut freed: i64 = 0;
        let mut rest = slots;
        while let [others @ .., last] = rest {
            step::<M::Threads>(Step::Entry);
            let Some(meta) = metas.of_entry(last.load(Ordering::Relaxed)) else {
                break;
            };
            if meta.state() != state {
                break;
            }
            if meta.drop_anonymous() {
                freed = freed.wrapping_add(self.free(metas.frame_of(meta), meta));
            }
            rest = others;
        }
        self.cache.count_freed(FrameKind::Anonymous, freed);
        rest
    }

    /// Drops a reference to `frame`, or to the block that contains it, which can be of any kind and state.
    pub(crate) fn drop_one(&mut self, frame: Frame) {
        let frame = self.frames.first_frame(frame);
        let meta = self.frames.meta(frame);
        let state = meta.state();
        let kind = state.kind();
        if state.is_plain(FrameKind::Anonymous)
            && state.is_single_of_first()
            && !state.has(State::IN_BLOCK)
        {
            self.state = state;
        }
        self.objects += u64::from(kind == FrameKind::Object);
        match meta.drop_reference() {
            Left::None => {
                let freed = self.free(frame, meta);
                self.cache.count_freed(kind, freed);
            }
            Left::Object => self.unmapped += 1,
            Left::Others => {}
        }
    }

    /// Frees a block that has no references, and returns the number of its frames. If it has a copy in a swap slot,
    /// [`finish`](Self::finish) frees it, because the manager of the slot acquires locks of ranks before that of the
    /// cache; returns 0 then.
    #[inline]
    fn free(&mut self, frame: Frame, meta: &Meta) -> i64 {
        // The state may have changed since it was compared, before another CPU dropped its reference.
        let state = meta.state();
        if state.is_single_of_first_uncopied() {
            self.frames
                .free_single(&mut self.cache, (frame, meta), state);
            return 1;
        }
        self.free_other(frame, meta)
    }

    #[cold]
    fn free_other(&mut self, frame: Frame, meta: &Meta) -> i64 {
        let state = meta.state();
        if state.has(State::COPIED) {
            meta.set_link(self.copied);
            self.copied = frame.number();
            return 0;
        }
        self.frames.free_uncounted(&mut self.cache, frame, meta);
        1 << state.order()
    }

    /// Unlocks the cache, and frees the pages with copies in swap slots. Returns the number of references to pages of
    /// objects that were dropped.
    #[inline]
    pub(crate) fn finish(self) -> u64 {
        drop(self.cache);
        if self.unmapped > 0 {
            self.frames.count_mapped_objects(-self.unmapped);
        }
        if self.copied != END {
            self.frames.free_copied(self.copied);
        }
        self.objects
    }
}
