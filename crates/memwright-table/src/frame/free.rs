//! Frees frames whose last reference was dropped: returns them to the CPU caches and the nodes.

use core::sync::atomic::Ordering;

use super::cache::{BATCH, Cache};
use super::frames::Frames;
use super::kind::FrameKind;
use super::meta::{END, Left, Meta, State, UNLINKED};
use crate::addr::Frame;
use crate::machine::Machine;

impl<M: Machine> Frames<M> {
    /// Frees a block that has no references.
    pub(crate) fn free_block(&self, frame: Frame) {
        let meta = self.meta(frame);
        if meta.state().has(State::COPIED) {
            self.leave_slot(frame, meta);
        }
        let mut cache = self.cache().lock();
        cache.count_freed(meta.kind(), 1 << meta.state().order());
        self.free_uncounted(&mut cache, frame, meta);
    }

    /// Drops one reference to each frame in a gather's list that starts at `head`.
    pub(crate) fn release_list(&self, head: u32) {
        let metas = self.metas();
        let mut cache = self.cache().lock();
        // Consecutive frames of one kind are counted together.
        let (mut kind, mut freed) = (FrameKind::Anonymous, 0);
        let mut unmapped = 0;
        let mut copied = END;
        let mut number = head;
        while number != END {
            let frame = Frame::new(number);
            let meta = metas.get(number);
            number = meta.link();
            // Unlink before dropping the reference: once the reference is dropped, the gather of another holder may
            // link the frame, and this store would cut the list of that gather.
            meta.set_link(UNLINKED);
            match meta.drop_reference() {
                Left::None => {}
                Left::Object => {
                    unmapped += 1;
                    continue;
                }
                Left::Others => continue,
            }
            let state = meta.state();
            debug_assert!(!state.has(State::TAIL), "a gather links first frames only");
            if !state.is_plain(kind) {
                if state.has(State::COPIED) {
                    // Free this frame later, when the cache's lock is not held: the manager of its swap slot acquires
                    // locks of ranks before `FrameCache`.
                    meta.set_link(copied);
                    copied = frame.number();
                    continue;
                }
                cache.count_freed(kind, freed);
                (kind, freed) = (state.kind(), 0);
            }
            // No order reaches the number of bits, and there are too few frames for the sum to wrap.
            freed = i64::wrapping_add(freed, 1i64.wrapping_shl(state.order().into()));
            self.free_uncounted(&mut cache, frame, meta);
        }
        cache.count_freed(kind, freed);
        drop(cache);
        if unmapped > 0 {
            self.count_mapped_objects(-unmapped);
        }
        if copied != END {
            self.free_copied(copied);
        }
    }

    /// Frees the frames of a list. All of them have copies in swap slots.
    #[cold]
    fn free_copied(&self, head: u32) {
        let mut number = head;
        while number != END {
            let frame = Frame::new(number);
            number = self.meta(frame).link();
            self.free_block(frame);
        }
    }

    #[inline]
    pub(super) fn free_uncounted(&self, cache: &mut Cache, frame: Frame, meta: &Meta) {
        debug_assert_eq!(meta.pins.load(Ordering::Relaxed), 0, "freed a pinned frame");
        let state = meta.state();
        debug_assert!(!state.has(State::COPIED), "freed a frame that has a slot");
        if !state.is_single_of_first() {
            self.free_other(cache, frame, meta);
            return;
        }
        meta.set_state(state.become_block(FrameKind::Free, 0));
        if cfg!(debug_assertions) {
            self.poison(frame);
        }
        cache.push(frame, meta);
        if cache.is_full() {
            self.relieve(cache);
        }
    }

    /// Moves frames from a cache that has reached its limit to their nodes: a batch from a full cache, or only the
    /// frame that was freed last from a cache that must not keep it.
    #[cold]
    fn relieve(&self, cache: &mut Cache) {
        if cache.is_short() {
            let short = self.free_on_nodes() < self.reserve();
            cache.set_short(short);
            if short && self.nodes.len() == 1 {
                let count = cache.count();
                self.drain(cache, count);
                return;
            }
            if !cache.is_full() {
                return;
            }
        }
        if self.nodes.len() == 1 {
            self.drain(cache, BATCH);
        } else {
            self.overflow_near(cache);
        }
    }

    #[cold]
    fn free_other(&self, cache: &mut Cache, frame: Frame, meta: &Meta) {
        let state = meta.state();
        if state.order() > 0 {
            self.free_large(frame, state);
        } else {
            self.free_to_node(cache, frame, meta);
        }
    }

    fn free_large(&self, frame: Frame, state: State) {
        for number in 0..1u32 << state.order() {
            let each = Frame::new(frame.number() + number);
            let part = self.meta(each);
            part.set_state(part.state().become_block(FrameKind::Free, 0));
            if cfg!(debug_assertions) {
                self.poison(each);
            }
        }
        let node = &self.nodes[state.node() as usize];
        node.lock().put(self.metas(), frame, state.order());
    }
}
