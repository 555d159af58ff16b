//! The part of the hugetlb pool that one hugetlbfs mount uses (Linux 7.3 `mm/hugetlb.c`, `hugepage_new_subpool`).

use alloc::sync::Arc;
use memwright_table::{Frames, Machine, SubpoolCounts, SubpoolId};

use crate::types::error::ObjectError;

/// A limit on the huge pages that several files use together, and a number of huge pages that the pool always keeps for
/// these files.
pub struct HugeSubpool<M: Machine> {
    frames: Arc<Frames<M>>,
    id: SubpoolId,
}

impl<M: Machine> HugeSubpool<M> {
    /// Creates a subpool with a limit of `most` huge pages and a guarantee of `least` huge pages.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] if the pool has fewer than `least` pages.
    pub fn new(
        frames: Arc<Frames<M>>,
        most: Option<u64>,
        least: Option<u64>,
    ) -> Result<Self, ObjectError> {
        let id = frames.open_subpool(most, least)?;
        Ok(Self { frames, id })
    }

    pub(crate) fn id(&self) -> SubpoolId {
        self.id
    }

    /// Returns the counters of the subpool.
    pub fn counts(&self) -> Option<SubpoolCounts> {
        self.frames.subpool(self.id)
    }
}

impl<M: Machine> Drop for HugeSubpool<M> {
    fn drop(&mut self) {
        self.frames.close_subpool(self.id);
    }
}
