//! Where shared memory has its pages: what whoever brings pages back from swap reaches without the object.

use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;

use memwright_table::sync::{Lock, LockGuard, Rank};
use memwright_table::{Machine, OutOfMemory, Shared};

use super::placed::Placed;
use super::{ObjectError, Pages, Room, Stored};
use crate::memory::Memory;
use crate::swap::{SwapPayer, Window, WindowCell};

/// What the lock of a store guards.
pub(crate) struct State<M: Machine> {
    pub(crate) pages: Pages<M>,
    /// In bytes.
    pub(crate) size: u64,
    /// Where new pages come from.
    pub(super) placed: Placed,
    /// Where the store is on the list of those whose pages may leave, if it is.
    pub(crate) listed: Option<u64>,
    /// Who pays for the slots of pages that leave while nobody shows them.
    pub(crate) payer: SwapPayer,
}

/// The pages of one object.
pub(crate) struct Store<M: Machine> {
    state: Lock<State<M>>,
    /// What other stores share with it.
    pub(super) room: Option<Arc<Room>>,
    /// The pages are locked: none leaves memory (`SHM_LOCK`).
    pub(crate) locked: AtomicBool,
    /// How many pages come back together for calls, which know no area.
    pub(crate) window: WindowCell,
}

impl<M: Machine> Store<M> {
    /// A store of `size` bytes, all zero, which has its pages in `room`.
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
            payer: SwapPayer::NOBODY,
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

    /// The same, with the pages `indices` in memory, as far as there are any: those in swap are brought back before.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`]; some of them may be back.
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
    /// Lets page `index`, whose frame the caller allocates next on this CPU, come from where its policy says.
    pub(crate) fn choose(&self, memory: &Memory<M>, index: u64) {
        if let Some(policy) = memory.placement(self.placed.get(index)) {
            let frames = memory.frames();
            let topology = frames.topology();
            let near = topology.node_of(frames.machine().cpu());
            frames.choose_next(policy.choice(near, index, topology.all(), |_| 1));
        }
    }

    /// Whether page `index` is in swap.
    pub(crate) fn is_in_swap(&self, index: u64) -> bool {
        matches!(self.pages.stored(index), Some(Stored::InSwap(_)))
    }
}
