//! The page store of shared memory: creating it, locking it after a swap-in, and following its NUMA policies.

use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;
use memwright_table::sync::{Lock, LockGuard, Rank, Threads};
use memwright_table::{Machine, OutOfMemory, Shared};

use crate::mm::memory::Memory;
use crate::store::page_store::{State, Store};
use crate::store::pages::Pages;
use crate::store::placed::Placed;
use crate::store::room::Room;
use crate::types::error::ObjectError;
use crate::types::memcg::Memcg;
use crate::types::swap_window::{Window, WindowCell};

impl<M: Machine> Store<M> {
    /// Creates the store of an object of `size` bytes, all zero. The pages count towards the limit of `room`.
    pub(super) fn new(
        memory: &Memory<M>,
        size: u64,
        room: Option<Arc<Room>>,
    ) -> Result<Shared<Self>, OutOfMemory> {
        let pages = Pages::new(memory.frames().clone()).sharing(room.clone());
        let state = State {
            pages,
            size,
            placed: Placed::new(),
            listed: None,
            memcg: Memcg::NOBODY,
        };
        Shared::try_new(Self {
            state: Lock::new(Rank::Object, state),
            room,
            locked: AtomicBool::new(false),
            window: WindowCell::new(Window::NONE),
        })
    }

    /// Like [`lock`](Self::lock), but first swaps in those pages of `indices` that are in swap.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`]. Some of the pages can already be swapped in.
    pub(super) fn lock_in_memory(
        &self,
        memory: &Memory<M>,
        indices: &[Option<u64>],
    ) -> Result<LockGuard<'_, State<M>, M::Threads>, ObjectError> {
        loop {
            let state = self.lock();
            let is_out = |index: &&u64| state.is_in_swap(**index);
            let Some(index) = indices.iter().flatten().find(is_out) else {
                return Ok(state);
            };
            drop(state);
            self.bring_in_for_call(memory, *index)?;
        }
    }
}

impl<M: Machine> State<M> {
    /// Makes the next frame allocation on this CPU follow the NUMA policy of page `index`. The caller then allocates
    /// the frame for page `index`.
    #[inline]
    pub(crate) fn choose(&self, memory: &Memory<M>, index: u64) {
        if !self.placed.is_empty() {
            self.choose_placed(memory, index);
        }
    }

    /// Implements [`choose`](Self::choose) for an object that has policies.
    #[cold]
    fn choose_placed(&self, memory: &Memory<M>, index: u64) {
        if let Some(policy) = memory.placement(self.placed.get(index)) {
            let frames = memory.frames();
            let topology = frames.topology();
            let near = topology.node_of(M::Threads::cpu());
            frames.choose_next(policy.choice(near, index, topology.all(), |_| 1));
        }
    }
}
