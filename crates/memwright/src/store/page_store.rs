//! The page store of shared memory: its pages, and the data that the lock of the store guards. The store is separate
//! from the object, because swap-in accesses it without a reference to the object.

use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;
use memwright_table::Machine;
use memwright_table::sync::{Lock, LockGuard};

use crate::store::pages::{Pages, Stored};
use crate::store::placed::Placed;
use crate::store::room::Room;
use crate::types::memcg::Memcg;
use crate::types::swap_window::WindowCell;

/// The data that the lock of a store guards.
pub(crate) struct State<M: Machine> {
    pub(crate) pages: Pages<M>,
    /// The size of the object, in bytes.
    pub(crate) size: u64,
    /// The NUMA policies of new pages.
    pub(crate) placed: Placed,
    /// The position of the store in the list of stores with reclaimable pages, if it is in the list.
    pub(crate) listed: Option<u64>,
    /// The memcg that is charged for the swap slots of pages that are swapped out while no entry maps them.
    pub(crate) memcg: Memcg,
}

/// The pages of one object.
pub(crate) struct Store<M: Machine> {
    pub(crate) state: Lock<State<M>, M::Threads>,
    /// The page limit and the huge-page mode of the mount, shared with the stores of its other files.
    pub(crate) room: Option<Arc<Room>>,
    /// Whether the pages are locked in memory (`SHM_LOCK`).
    pub(crate) locked: AtomicBool,
    /// The swap readahead window for system calls that access the object, because these calls have no area whose window
    /// they could use.
    pub(crate) window: WindowCell,
}

impl<M: Machine> Store<M> {
    /// Takes the lock of the store, which guards the pages and the size.
    pub(crate) fn lock(&self) -> LockGuard<'_, State<M>, M::Threads> {
        self.state.lock()
    }
}

impl<M: Machine> State<M> {
    /// Returns whether page `index` is in swap.
    pub(crate) fn is_in_swap(&self, index: u64) -> bool {
        self.pages.swapped() > 0 && matches!(self.pages.stored(index), Some(Stored::InSwap(_)))
    }
}
