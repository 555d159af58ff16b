//! Pages outside of memory: who counts the entries that name them, and which frames have a copy there.

extern crate alloc as rust_alloc;

use core::sync::atomic::{AtomicPtr, Ordering};

use rust_alloc::boxed::Box;
use rust_alloc::sync::Arc;

use super::meta::State;
use super::{Frames, Meta};
use crate::addr::Frame;
use crate::machine::Machine;

/// Who keeps pages outside of memory, in slots that entries name ([`crate::Swapped`]).
///
/// Each entry that names a slot is one use of it. The methods are called with the locks of page tables held,
/// and take none of an earlier rank than [`Rank::Swap`](crate::sync::Rank::Swap).
pub trait Slots<M: Machine>: Send + Sync {
    /// One more entry names `slot`, which another names already.
    fn share(&self, frames: &Frames<M>, slot: u64);

    /// An entry that named `slot` does so no more.
    fn release(&self, frames: &Frames<M>, slot: u64);

    /// The last reference of `frame`, which has a copy in `slot`, is gone. The keeper says that the frame has
    /// none any more ([`Frames::set_slot`]).
    fn leave(&self, frames: &Frames<M>, frame: Frame, slot: u64);
}

/// The keeper of slots of a machine's memory, once there is one.
pub(super) struct Keeper<M: Machine>(AtomicPtr<Arc<dyn Slots<M>>>);

impl<M: Machine> Keeper<M> {
    pub(super) const fn none() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    fn get(&self) -> Option<&dyn Slots<M>> {
        let keeper = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or that of a box which `set` stored once and only `drop` frees.
        unsafe { keeper.as_ref() }.map(|keeper| &**keeper)
    }

    fn set(&self, keeper: Arc<dyn Slots<M>>) {
        let new = Box::into_raw(Box::new(keeper));
        let (null, order) = (core::ptr::null_mut(), Ordering::AcqRel);
        if self
            .0
            .compare_exchange(null, new, order, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: the box was made above, and nobody else has its pointer.
            drop(unsafe { Box::from_raw(new) });
            panic!("the slots of a machine have one keeper");
        }
    }
}

impl<M: Machine> Drop for Keeper<M> {
    fn drop(&mut self) {
        let keeper = *self.0.get_mut();
        if !keeper.is_null() {
            // SAFETY: `set` made the box, and nobody borrows from the keeper any more.
            drop(unsafe { Box::from_raw(keeper) });
        }
    }
}

impl<M: Machine> Frames<M> {
    /// Says who counts the uses of slots.
    ///
    /// # Panics
    /// If somebody does already.
    pub fn set_slots(&self, keeper: Arc<dyn Slots<M>>) {
        self.slots.set(keeper);
    }

    /// Whether swap has been set up, so that pages may have copies in slots.
    pub(crate) fn has_slots(&self) -> bool {
        self.slots.get().is_some()
    }

    /// Says that a copy of the page in `frame`, which has a reference, is in `slot`, or in none. The caller
    /// keeps others from saying so at the same time.
    ///
    /// # Panics
    /// If the frame lies in a block of several.
    pub fn set_slot(&self, frame: Frame, slot: Option<u64>) {
        let meta = self.meta(frame);
        assert!(!meta.is_in_block(), "a part of a block has no slot");
        match slot {
            Some(slot) => {
                meta.owner.store(slot, Ordering::Relaxed);
                meta.add_flags(State::COPIED);
            }
            None => meta.remove_flags(State::COPIED),
        }
    }

    /// Where a copy of the page in `frame` is.
    #[inline]
    pub fn slot_of(&self, frame: Frame) -> Option<u64> {
        let meta = self.meta(frame);
        meta.state()
            .has(State::COPIED)
            .then(|| meta.owner.load(Ordering::Relaxed))
    }

    /// Says whether the contents of `frame`, which one entry shows, may be lost as long as that entry is clean.
    ///
    /// # Panics
    /// If the frame lies in a block of several.
    pub fn set_lazy(&self, frame: Frame, lazy: bool) {
        let meta = self.meta(frame);
        assert!(!meta.is_in_block(), "a part of a block is not freed lazily");
        if lazy {
            meta.add_flags(State::LAZY);
        } else {
            meta.remove_flags(State::LAZY);
        }
    }

    /// Whether they may.
    #[inline]
    pub fn is_lazy(&self, frame: Frame) -> bool {
        self.meta(frame).state().has(State::LAZY)
    }

    /// One more entry names `slot`.
    #[cold]
    pub(crate) fn share_slot(&self, slot: u64) {
        if let Some(slots) = self.slots.get() {
            slots.share(self, slot);
        }
    }

    /// An entry, or the store of an object, that named `slot` does so no more.
    #[cold]
    pub fn release_slot(&self, slot: u64) {
        if let Some(slots) = self.slots.get() {
            slots.release(self, slot);
        }
    }

    /// Before a frame without references, which has a copy in a slot, is freed.
    #[cold]
    pub(super) fn leave_slot(&self, frame: Frame, meta: &Meta) {
        let slot = meta.owner.load(Ordering::Relaxed);
        match self.slots.get() {
            Some(slots) => slots.leave(self, frame, slot),
            None => self.set_slot(frame, None),
        }
    }
}
