//! Whether there is swap. Without the feature `swap`, there is none.

use memwright_table::Machine;

use crate::mm::memory::Memory;

impl<M: Machine> Memory<M> {
    /// Returns false.
    #[inline]
    pub(crate) fn swaps(&self) -> bool {
        false
    }
}
