//! Swap devices without the feature `swap`: none can be added.

use alloc::sync::Arc;
use memwright_table::{Machine, OutOfMemory};

use crate::mm::memory::Memory;
use crate::swap::device::SwapDevice;

impl<M: Machine> Memory<M> {
    /// Adds no device. Returns `None`, as if there were too many devices.
    ///
    /// # Errors
    /// None.
    pub fn add_swap(
        &self,
        _device: Arc<dyn SwapDevice<M>>,
        _priority: i32,
    ) -> Result<Option<usize>, OutOfMemory> {
        Ok(None)
    }

    /// Returns false: there is no device.
    pub fn close_swap(&self, _number: usize, _closed: bool) -> bool {
        false
    }

    /// Returns false: there is no device.
    pub fn remove_swap(&self, _number: usize) -> bool {
        false
    }
}
