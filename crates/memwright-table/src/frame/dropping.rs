//! Drops the references that the entries of a last-level table hold.
//!
//! No CPU uses the table any more, so nothing has to be flushed between the removal of an entry and the drop of its
//! reference. The frames therefore need not be linked in the list of a gather first.

use core::sync::atomic::Ordering;

use super::frames::Frames;
use super::kind::FrameKind;
use super::meta::State;
use crate::addr::Frame;
use crate::arch::TableSlot;
use crate::machine::{Machine, SlotOf};
use crate::sync::{Step, step};

/// The state of the single anonymous frames of the first node whose references [`Frames::drop_alike`] drops.
/// [`Frames::drop_counted`] sets it to the state of the last such frame whose reference it dropped.
#[derive(Clone, Copy)]
pub(crate) struct Alike(State);

impl Alike {
    /// The state of frames without a copy in swap.
    pub(crate) const fn new() -> Self {
        Self(State::new(FrameKind::Anonymous, 0, 0))
    }
}

impl<M: Machine> Frames<M> {
    /// Drops the references that the last of `slots` hold. Goes backwards, so that the frame of the first page is
    /// allocated first again, and stops at a slot that does not map a page with rights or whose frame does not have the
    /// state `alike`. Returns the slots before those whose references it dropped. Does not write the slots.
    #[inline(never)]
    pub(crate) fn drop_alike<'s>(
        &self,
        slots: &'s [SlotOf<M>],
        Alike(alike): Alike,
    ) -> &'s [SlotOf<M>] {
        let metas = self.metas();
        let is_alike = |slot: &SlotOf<M>| {
            let meta = metas.of_entry(slot.load(Ordering::Relaxed));
            meta.is_some_and(|meta| meta.state() == alike)
        };
        if !slots.last().is_some_and(is_alike) {
            return slots;
        }
        let mut cache = self.cache().lock();
        let mut freed: i64 = 0;
        let mut changed = None;
        let mut rest = slots;
        while let [others @ .., last] = rest {
            step::<M::Threads>(Step::Entry);
            let Some(meta) = metas.of_entry(last.load(Ordering::Relaxed)) else {
                break;
            };
            if meta.state() != alike {
                break;
            }
            rest = others;
            if meta.drop_anonymous(|| step::<M::Threads>(Step::Entry)) {
                let frame = metas.frame_of(meta);
                // Another CPU may have changed the state before it dropped its reference.
                if meta.state().has(State::COPIED) {
                    changed = Some(frame);
                    break;
                }
                self.free_uncounted(&mut cache, frame, meta);
                freed = freed.wrapping_add(1);
            }
        }
        cache.count_freed(FrameKind::Anonymous, freed);
        drop(cache);
        if let Some(frame) = changed {
            self.free_block(frame);
        }
        rest
    }

    /// Drops a reference to `frame`, or to the block that contains it, which can be of any kind and state. Returns
    /// whether `frame` is a page of an object.
    pub(crate) fn drop_counted(&self, frame: Frame, alike: &mut Alike) -> bool {
        let state = self.meta(self.first_frame(frame)).state();
        if state.is_plain(FrameKind::Anonymous)
            && state.is_single_of_first()
            && !state.has(State::IN_BLOCK)
        {
            *alike = Alike(state);
        }
        self.release(frame);
        state.kind() == FrameKind::Object
    }
}
