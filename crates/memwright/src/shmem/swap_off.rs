//! Swap of shared memory without the feature `swap`: every page stays in memory.

use memwright_table::{Machine, Shared};

use crate::mm::mappings::Mappings;
use crate::mm::memory::Memory;
use crate::mm::object::CollapseError;
use crate::shmem::Shmem;
use crate::shmem::unmapped::ObjectPlace;
use crate::store::cluster::Cluster;
use crate::store::leaving::Left;
use crate::store::page_store::Store;
use crate::swap::Swap;
use crate::swap::asker::Asker;
use crate::types::error::ObjectError;
use crate::types::memcg::{Memcg, NoMemcg};

/// No page was swapped out, because there is no slot.
const NONE: Left = Left {
    pages: 0,
    written_back: 0,
    is_full: true,
};

impl<M: Machine> Swap<M> {
    /// Opens a memcg below `parent`, with no charges and no limit. `parent` is [`Memcg::NOBODY`] for a memcg at the top
    /// of the hierarchy.
    ///
    /// # Errors
    /// The charge records cannot be allocated, or there are too many memcgs.
    pub fn open_memcg(&self, parent: Memcg) -> Result<Memcg, NoMemcg> {
        self.bills.open(parent)
    }

    /// Closes a memcg. Objects that are charged to it stay charged to the memcgs above it.
    pub fn close_memcg(&self, memcg: Memcg) {
        self.bills.close(memcg);
    }

    /// Returns 0.
    pub fn slots_of_objects(&self) -> u64 {
        0
    }
}

impl<M: Machine> Store<M> {
    /// Swaps in nothing.
    pub(crate) fn bring_in(
        &self,
        _memory: &Memory<M>,
        _index: u64,
        _most: u64,
    ) -> Result<u64, ObjectError> {
        Ok(0)
    }

    /// Swaps in nothing.
    pub(super) fn begin_bring_in(
        _store: &Shared<Self>,
        _memory: &Memory<M>,
        _index: u64,
        _most: u64,
        _asker: Asker,
    ) -> Result<u64, ObjectError> {
        Ok(0)
    }

    /// Swaps in nothing.
    pub(crate) fn bring_in_for_call(
        &self,
        _memory: &Memory<M>,
        _index: u64,
    ) -> Result<(), ObjectError> {
        Ok(())
    }

    /// Returns 0: nothing is read ahead.
    pub(crate) fn asked_for(&self, _first: u64, _pages: u64) -> u64 {
        0
    }

    /// Swaps out nothing.
    pub(crate) fn send_out(
        &self,
        _memory: &Memory<M>,
        _mappings: &Mappings<M>,
        _pages: Cluster,
        _memcg: Memcg,
    ) -> Left {
        NONE
    }

    /// Swaps out nothing.
    pub(super) fn write_out(&self, _memory: &Memory<M>, _pages: Cluster, _memcg: Memcg) -> Left {
        NONE
    }
}

impl<M: Machine> Shmem<M> {
    /// Swaps in nothing.
    pub(super) fn gather_swapped(&self, _first: u64) -> Result<(), CollapseError> {
        Ok(())
    }
}

impl<M: Machine> Memory<M> {
    /// Swaps in nothing. Returns true: the pass is complete.
    ///
    /// # Errors
    /// None.
    pub fn bring_objects_back(
        &self,
        _device: usize,
        _place: &mut ObjectPlace,
        _most: u64,
    ) -> Result<bool, ObjectError> {
        Ok(true)
    }
}
