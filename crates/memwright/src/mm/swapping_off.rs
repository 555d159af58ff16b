//! Whether there is swap: not without the feature `swap`.

use memwright_table::Machine;

use crate::mm::memory::Memory;

impl<M: Machine> Memory<M> {
    /// Returns false.
    #[inline]
    pub(crate) fn swaps(&self) -> bool {
        false
    }
}
