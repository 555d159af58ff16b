//! Looking up pages for the faults of areas that map shared memory.

use memwright_table::{Frame, Machine};

use crate::shmem::{Shmem, pages_of};
use crate::store::look_up::Lookup;
use crate::store::page_store::State;
use crate::types::error::ObjectError;

impl<M: Machine> Shmem<M> {
    /// Like [`frame_for`](Self::frame_for), but does not swap in a page: returns [`ObjectError::InSwap`] for a page in
    /// swap.
    pub(super) fn frame_in_memory(
        &self,
        index: u64,
        create: bool,
    ) -> Result<Option<Frame>, ObjectError> {
        self.shared_frame(&mut self.store.lock(), index, create)
    }

    /// Implements [`frame_in_memory`](Self::frame_in_memory). The caller holds the lock of the store.
    #[inline(always)]
    pub(super) fn shared_frame(
        &self,
        state: &mut State<M>,
        index: u64,
        create: bool,
    ) -> Result<Option<Frame>, ObjectError> {
        if index >= pages_of(state.size) {
            return Err(ObjectError::BeyondEnd);
        }
        let frame = match state.pages.look_up(self.memory.frames(), index) {
            Lookup::InMemory(frame) => frame,
            Lookup::InSwap => return Err(ObjectError::InSwap),
            Lookup::Vacant(vacancy) if create => self.create(state, &vacancy, true)?,
            Lookup::Vacant(_) => return Ok(None),
        };
        Ok(Some(self.memory.frames().share(frame).into_raw()))
    }

    /// Returns a bitmap of the pages that are stored and not past the end of the object, among the pages `first + i` for
    /// which bit `i` is set in `wanted`. The caller holds the lock of the store.
    #[inline]
    pub(super) fn stored_run(&self, state: &State<M>, first: u64, wanted: u64) -> u64 {
        let stored = state.pages.stored_of(first, wanted);
        if stored == 0 {
            return 0;
        }
        match pages_of(state.size).saturating_sub(first) {
            inside @ 0..64 => stored & ((1 << inside) - 1),
            64.. => stored,
        }
    }

    /// Takes references to the pages in the bitmap `stored` that are in memory, for [`Object::cached_run`]. Returns a
    /// bitmap of these pages. The caller holds the lock of the store.
    #[inline(never)]
    pub(super) fn take_run(
        &self,
        state: &State<M>,
        first: u64,
        stored: u64,
        frames: &mut [Frame],
    ) -> u64 {
        let found = state.pages.get_run_unasked(first, stored, frames);
        let mut left = found;
        while left != 0 {
            let frame = frames[left.trailing_zeros() as usize];
            left &= left - 1;
            let _ = self.memory.frames().share(frame).into_raw();
        }
        found
    }
}
