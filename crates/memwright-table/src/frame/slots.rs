//! The interface to the manager of swap slots, and the record of frames that have a copy in a slot.

extern crate alloc as rust_alloc;

use core::sync::atomic::{AtomicPtr, Ordering};

use rust_alloc::boxed::Box;
use rust_alloc::sync::Arc;

use super::meta::State;
use super::{Frames, Meta};
use crate::addr::Frame;
use crate::machine::Machine;

/// The manager of swap slots, to which swap entries refer ([`crate::Swapped`]).
///
/// Each swap entry holds one reference to its slot.
///
/// # Locks
/// The caller of a method can hold page-table locks. A method acquires no lock of an earlier rank than
/// [`Rank::Swap`](crate::sync::Rank::Swap).
pub trait Slots<M: Machine>: Send + Sync {
    /// Adds a reference to each of `slots`. Other entries already hold references to them.
    fn share(&self, frames: &Frames<M>, slots: &[u64]);

    /// Drops the reference to each of `slots` that a removed entry held.
    fn release(&self, frames: &Frames<M>, slots: &[u64]);

    /// Detaches `slot` from `frame`, which is about to be freed: its last reference was dropped. The page in `frame`
    /// has a copy in the slot. The implementation must clear the slot that is recorded for the frame
    /// ([`Frames::set_slot`]).
    fn leave(&self, frames: &Frames<M>, frame: Frame, slot: u64);
}

/// The manager of swap slots of a machine; null until it is set.
pub(super) struct Keeper<M: Machine>(AtomicPtr<Arc<dyn Slots<M>>>);

impl<M: Machine> Keeper<M> {
    pub(super) const fn none() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    fn get(&self) -> Option<&dyn Slots<M>> {
        let keeper = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or points to a box that `set` stored once and only `drop` frees.
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
            // SAFETY: the box was created above, and its pointer was not shared.
            drop(unsafe { Box::from_raw(new) });
            panic!("two memory managers on one `Frames`: another one has swap devices already");
        }
    }
}

impl<M: Machine> Drop for Keeper<M> {
    fn drop(&mut self) {
        let keeper = *self.0.get_mut();
        if !keeper.is_null() {
            // SAFETY: `set` created the box, and no borrow of the manager exists any more.
            drop(unsafe { Box::from_raw(keeper) });
        }
    }
}

impl<M: Machine> Frames<M> {
    /// Sets the manager of swap slots.
    ///
    /// # Panics
    /// If a manager is set already, by another memory manager on the same `Frames`.
    pub fn set_slots(&self, keeper: Arc<dyn Slots<M>>) {
        self.slots.set(keeper);
    }

    /// Whether swap has been set up, so that pages can have copies in slots.
    pub(crate) fn has_slots(&self) -> bool {
        self.slots.get().is_some()
    }

    /// Records that `slot` contains a copy of the page in `frame`, or, if `slot` is `None`, that no slot contains one.
    /// The caller holds a reference to the frame, and serializes calls for one frame.
    ///
    /// # Panics
    /// If the frame is in a block of several frames.
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

    /// Returns the slot that holds a copy of the page in `frame`, if any.
    #[inline]
    pub fn slot_of(&self, frame: Frame) -> Option<u64> {
        let meta = self.metas().find(frame.number())?;
        meta.state()
            .has(State::COPIED)
            .then(|| meta.owner.load(Ordering::Relaxed))
    }

    /// Sets whether reclaim may discard the contents of `frame` while its entry is clean (`MADV_FREE`). One entry maps
    /// the frame.
    ///
    /// # Panics
    /// If the frame is in a block of several frames.
    pub fn set_lazy(&self, frame: Frame, lazy: bool) {
        let meta = self.meta(frame);
        assert!(!meta.is_in_block(), "a part of a block is not freed lazily");
        if lazy {
            meta.add_flags(State::LAZY);
        } else {
            meta.remove_flags(State::LAZY);
        }
    }

    /// Whether reclaim may discard the contents of `frame` while its entry is clean.
    #[inline]
    pub fn is_lazy(&self, frame: Frame) -> bool {
        let meta = self.metas().find(frame.number());
        meta.is_some_and(|meta| meta.state().has(State::LAZY))
    }

    /// Adds a reference to each of `slots` for one more entry.
    #[cold]
    pub(crate) fn share_slots(&self, slots: &[u64]) {
        if let Some(keeper) = self.slots.get() {
            keeper.share(self, slots);
        }
    }

    /// Drops the reference to each of `slots` that a removed entry or the page store of an object held.
    #[cold]
    pub fn release_slots(&self, slots: &[u64]) {
        if let Some(keeper) = self.slots.get() {
            keeper.release(self, slots);
        }
    }

    /// Detaches the swap slot from a frame that has no references and is about to be freed.
    #[cold]
    pub(super) fn leave_slot(&self, frame: Frame, meta: &Meta) {
        let slot = meta.owner.load(Ordering::Relaxed);
        match self.slots.get() {
            Some(slots) => slots.leave(self, frame, slot),
            None => self.set_slot(frame, None),
        }
    }
}
