//! Looking up pages for the faults of areas that map shared memory.

use memwright_table::{Frame, Machine};

use crate::shmem::{Shmem, pages_of};
use crate::store::page_store::State;
use crate::store::pages::Lookup;
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
    #[inline]
    pub(super) fn shared_frame(
        &self,
        state: &mut State<M>,
        index: u64,
        create: bool,
    ) -> Result<Option<Frame>, ObjectError> {
        if index >= pages_of(state.size) {
            return Err(ObjectError::BeyondEnd);
        }
        let frame = match state.pages.look_up(index) {
            Lookup::InMemory(frame) => frame,
            Lookup::InSwap => return Err(ObjectError::InSwap),
            Lookup::Vacant(vacancy) if create => self.create(state, &vacancy, true)?,
            Lookup::Vacant(_) => return Ok(None),
        };
        Ok(Some(self.memory.frames().share(frame).into_raw()))
    }

    /// Implements [`Object::cached_run`]. The caller holds the lock of the store.
    #[inline]
    pub(super) fn run_in_memory(
        &self,
        state: &State<M>,
        first: u64,
        wanted: u64,
        frames: &mut [Frame],
    ) -> u64 {
        let inside = pages_of(state.size).saturating_sub(first);
        let wanted = match inside {
            0..64 => wanted & ((1 << inside) - 1),
            64.. => wanted,
        };
        let found = state.pages.get_run_unasked(first, wanted, frames);
        let mut left = found;
        while left != 0 {
            let frame = frames[left.trailing_zeros() as usize];
            left &= left - 1;
            let _ = self.memory.frames().share(frame).into_raw();
        }
        found
    }
}
