//! Whether there is swap.

use core::sync::atomic::Ordering;
use memwright_table::Machine;

use crate::mm::memory::Memory;

impl<M: Machine> Memory<M> {
    /// Returns whether a swap device was ever added.
    #[inline]
    pub(crate) fn swaps(&self) -> bool {
        self.swapping.load(Ordering::Acquire)
    }
}
