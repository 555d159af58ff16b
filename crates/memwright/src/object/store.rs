//! The page store of shared memory, which swap-in reaches without the object.

use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;

use memwright_table::sync::{Lock, LockGuard, Rank};
use memwright_table::{Machine, OutOfMemory, Shared};

use super::placed::Placed;
use super::{ObjectError, Pages, Room, Stored};
use crate::memory::Memory;
use crate::swap::{Memcg, Window, WindowCell};

/// The data that the lock of a store guards.
pub(crate) struct State<M: Machine> {
    pub(crate) pages: Pages<M>,
    /// In bytes.
    pub(crate) size: u64,
    /// The NUMA policies of new pages.
    pub(super) placed: Placed,
    /// The position of the store in the list of stores with reclaimable pages, if it is in the list.
    pub(crate) listed: Option<u64>,
    /// The memcg that is charged for the swap slots of pages that are swapped out while unmapped.
    pub(crate) memcg: Memcg,
}

/// The pages of one object.
pub(crate) struct Store<M: Machine> {
    state: Lock<State<M>>,
    /// The limit and settings that the store shares with other stores of the mount.
    pub(super) room: Option<Arc<Room>>,
    /// Whether the pages are locked in memory (`SHM_LOCK`).
    pub(crate) locked: AtomicBool,
    /// The swap-in window of system calls, which access the object without an area.
    pub(crate) window: WindowCell,
}

impl<M: Machine> Store<M> {
    /// Creates a store of `size` bytes, all zero, which counts its pages in `room`.
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

    /// Locks the pages and the size.
    pub(crate) fn lock(&self) -> LockGuard<'_, State<M>> {
        self.state.lock()
    }

    /// Like [`lock`](Self::lock), but first swaps in those of the pages `indices` that are in swap.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`]. Some of the pages can already be swapped in.
    pub(super) fn lock_in_memory(
        &self,
        memory: &Memory<M>,
        indices: &[Option<u64>],
    ) -> Result<LockGuard<'_, State<M>>, ObjectError> {
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
    /// Applies the NUMA policy of page `index` to the next frame allocation on this CPU, which the caller makes for the
    /// page.
    pub(crate) fn choose(&self, memory: &Memory<M>, index: u64) {
        if let Some(policy) = memory.placement(self.placed.get(index)) {
            let frames = memory.frames();
            let topology = frames.topology();
            let near = topology.node_of(frames.machine().cpu());
            frames.choose_next(policy.choice(near, index, topology.all(), |_| 1));
        }
    }

    /// Returns whether page `index` is in swap.
    pub(crate) fn is_in_swap(&self, index: u64) -> bool {
        matches!(self.pages.stored(index), Some(Stored::InSwap(_)))
    }
}
