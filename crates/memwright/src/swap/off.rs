//! Swap without the feature `swap`: there is no device and no slot. The interface of devices, the charges of memcgs and
//! the list of page stores still exist.

pub(crate) mod asker;
pub(crate) mod device;
pub(crate) mod memcg;
pub(crate) mod place;
#[cfg_attr(not(feature = "reclaim"), path = "stores_off.rs")]
pub(crate) mod stores;
#[path = "transfers_off.rs"]
pub(crate) mod transfers;

pub use device::{DeviceError, DeviceUse, Direction, Submission, SwapDevice, Ticket, Transfer};
pub use place::{MOST_DEVICES, Place};

use alloc::sync::Arc;
use alloc::vec::Vec;
use memwright_table::{Frame, Frames, Machine, OutOfMemory, Slots};

use crate::mm::memory::Memory;
use crate::swap::memcg::SwapCharges;
use crate::swap::stores::Stores;
use crate::types::memcg::Memcg;

/// The slot for a page that is swapped out. Never created: there is no slot.
pub(crate) struct Way {
    pub(crate) slot: u64,
    pub(crate) kept: bool,
}

/// The outcome of freeing the frame of a page that all of its owners have swapped out.
#[derive(Default)]
pub(crate) struct Shed {
    pub(crate) freed: bool,
    pub(crate) written: bool,
    pub(crate) refused: bool,
}

/// The swap devices of a machine and their slots, of which there are none.
pub struct Swap<M: Machine> {
    /// The charges of the memcgs.
    pub(crate) bills: SwapCharges<M::Threads>,
    /// The list of the page stores of objects with reclaimable pages.
    pub(crate) stores: Stores<M>,
}

impl<M: Machine> Swap<M> {
    pub(crate) fn new() -> Self {
        Self {
            bills: SwapCharges::new(),
            stores: Stores::new(),
        }
    }

    /// Adds no device. Returns `None`, as if there were too many devices.
    ///
    /// # Errors
    /// None.
    pub(crate) fn add(
        &self,
        _device: Arc<dyn SwapDevice<M>>,
        _priority: i32,
    ) -> Result<Option<usize>, OutOfMemory> {
        Ok(None)
    }

    /// Returns an empty list.
    ///
    /// # Errors
    /// None.
    pub fn devices(&self) -> Result<Vec<DeviceUse>, OutOfMemory> {
        Ok(Vec::new())
    }

    /// Returns 0 slots, of which 0 are in use.
    pub fn totals(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Returns 0.
    pub fn cached_pages(&self) -> u64 {
        0
    }

    /// Returns 0.
    pub fn shares(&self, _slot: u64, _count: u64, _unit: u64) -> u64 {
        0
    }

    /// Returns 0.
    pub(crate) fn slots_in_use(&self) -> u64 {
        0
    }

    /// Returns false.
    pub fn is_on(&self) -> bool {
        false
    }

    /// Returns the number of objects that are charged to `memcg` or to a memcg below it.
    pub fn objects_of(&self, memcg: Memcg) -> u64 {
        self.bills.objects(memcg)
    }

    /// Returns 0.
    pub fn paid_by(&self, _memcg: Memcg) -> u64 {
        0
    }

    /// Returns 0.
    pub fn refused_to(&self, _memcg: Memcg) -> u64 {
        0
    }

    /// Returns 0.
    pub fn full_for(&self, _memcg: Memcg) -> u64 {
        0
    }

    /// Does nothing: there is no slot to limit.
    pub fn limit_memcg(&self, _memcg: Memcg, _most: u64) {}

    /// Returns 0: no frame is held for a slot.
    pub fn shed_some(&self, _memory: &Memory<M>, _wanted: u64) -> u64 {
        0
    }

    /// Returns `None`.
    pub(crate) fn way_out(
        &self,
        _frames: &Frames<M>,
        _frame: Frame,
        _dirty: bool,
        _memcg: Memcg,
    ) -> Option<Way> {
        None
    }

    /// Returns `None`.
    pub(crate) fn share_out(
        &self,
        _frames: &Frames<M>,
        _frame: Frame,
        _dirty: bool,
        _memcg: Memcg,
    ) -> Option<u64> {
        None
    }

    /// Frees nothing.
    pub(crate) fn shed(&self, _frames: &Frames<M>, _slot: u64) -> Shed {
        Shed::default()
    }

    /// Does nothing: no slot has a copy of a page.
    pub(crate) fn follow(&self, _frames: &Frames<M>, _old: Frame, _new: Frame) {}

    /// Does nothing: no slot has a copy of a page.
    pub(crate) fn forget(&self, _frames: &Frames<M>, _frame: Frame) {}
}

impl<M: Machine> Slots<M> for Swap<M> {
    fn share(&self, _frames: &Frames<M>, _slots: &[u64]) {}

    fn release(&self, _frames: &Frames<M>, _slots: &[u64]) {}

    fn leave(&self, frames: &Frames<M>, frame: Frame, _slot: u64) {
        frames.set_slot(frame, None);
    }
}
