//! Adding and removing swap devices (Linux 7.2 `mm/swapfile.c`, `swapon` and `swapoff`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_table::{Machine, OutOfMemory};

use crate::mm::memory::Memory;
use crate::swap::device::SwapDevice;

impl<M: Machine> Memory<M> {
    /// Adds `device` as a swap device. Devices with a higher priority are filled first. Returns the number of the
    /// device. Returns `None` if there are [`MOST_DEVICES`](crate::swap::MOST_DEVICES) devices already, or if the crate
    /// was compiled without the feature `swap`. The heap holds 8 bytes and 1 bit for each slot of the device.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the slot map of the device cannot be allocated.
    ///
    /// # Panics
    /// If another memory manager of the machine has swap devices.
    pub fn add_swap(
        &self,
        device: Arc<dyn SwapDevice<M>>,
        priority: i32,
    ) -> Result<Option<usize>, OutOfMemory> {
        if !self.swapping.swap(true, Ordering::AcqRel) {
            self.frames.set_slots(self.swap.clone());
        }
        let added = self.swap.add(device, priority);
        self.commit.follow_swap(|| self.swap.open_slots());
        added
    }

    /// Closes device `number`, or reopens it if `closed` is false. No page is swapped out to a closed device, and its
    /// slots do not count towards the commit limit. Returns false if the device does not exist, or already is closed or
    /// open as requested.
    pub fn close_swap(&self, number: usize, closed: bool) -> bool {
        let changed = self.swap.set_closed(number, closed);
        self.commit.follow_swap(|| self.swap.open_slots());
        changed
    }

    /// Removes device `number`, which must be closed. First frees the slots that only hold copies of pages in memory.
    /// Returns false if other slots are still in use, or if the device does not exist.
    pub fn remove_swap(&self, number: usize) -> bool {
        self.swap.forget_copies(&self.frames, number);
        self.swap.remove(number)
    }
}
