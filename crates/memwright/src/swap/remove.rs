//! Swapoff: removing a device (Linux 7.2 `mm/swapfile.c`, `swapoff` and `try_to_unuse`).
//!
//! First the device is closed to further pages. Then every address space swaps in its pages from the device
//! ([`AddressSpace::bring_back`](crate::AddressSpace::bring_back)), and slots that only hold copies of pages in memory
//! are freed. The device is removed once no slot is in use. Until then it can be reopened, so that no page is lost if
//! memory runs out.

use memwright_table::{Frames, Machine};

use crate::swap::place::Place;
use crate::swap::{CACHED_AT_A_TIME, Swap};

impl<M: Machine> Swap<M> {
    /// Closes device `number` if `closed` is set, otherwise reopens it. Returns false if there is no such device, or if
    /// it is already closed or open as requested.
    pub(crate) fn set_closed(&self, number: usize, closed: bool) -> bool {
        let mut devices = self.devices.lock();
        let active = devices.get_mut(number).and_then(Option::as_mut);
        active.is_some_and(|active| active.slots.set_closed(closed))
    }

    /// Returns the number of slots of all devices that are not closed.
    pub(crate) fn open_slots(&self) -> u64 {
        let devices = self.devices.lock();
        let open = devices.iter().flatten().map(|active| &active.slots);
        open.filter(|slots| !slots.is_closed())
            .map(|slots| u64::from(slots.slots()))
            .sum()
    }

    /// Frees the slots of device `number` that no entry names and that hold copies of pages in memory.
    pub(crate) fn forget_copies(&self, frames: &Frames<M>, number: usize) {
        let mut from = 0;
        loop {
            let (some, next) = self.copies_from(frames, number, from);
            for slot in some.into_iter().flatten() {
                self.free(frames, slot);
            }
            match next {
                Some(next) => from = next,
                None => return,
            }
        }
    }

    /// Finds the next slots, from slot `from` on, that no entry names and that hold copies of pages in memory. Removes
    /// the frames from their records. Returns the slots, which the caller frees, and the slot at which to continue, or
    /// `None` at the end of the device.
    fn copies_from(
        &self,
        frames: &Frames<M>,
        number: usize,
        from: u32,
    ) -> ([Option<u64>; CACHED_AT_A_TIME], Option<u32>) {
        let mut found = [None; CACHED_AT_A_TIME];
        let mut count = 0;
        let mut devices = self.devices.lock();
        let Some(active) = devices.get_mut(number).and_then(Option::as_mut) else {
            return (found, None);
        };
        for offset in from..active.slots.slots() {
            let record = active.slots.record(offset);
            if record.uses > 0 || record.frame().is_none() {
                continue;
            }
            // The frame is still allocated, because a frame is removed from the slot's record under this lock before it
            // is freed. Afterwards the page has no copy in swap, so the next swap-out writes it even if it is clean.
            self.take_frame(frames, record);
            let device = number;
            found[count] = Some(Place { device, offset }.slot());
            count += 1;
            if count == CACHED_AT_A_TIME {
                return (found, Some(offset + 1));
            }
        }
        (found, None)
    }

    /// Removes a closed device, if none of its slots is in use. Returns whether it was removed.
    pub(crate) fn remove(&self, number: usize) -> bool {
        let mut devices = self.devices.lock();
        let Some(place) = devices.get_mut(number) else {
            return false;
        };
        let unused = place.as_ref().is_some_and(|active| {
            active.slots.is_closed() && active.slots.free() == active.slots.slots()
        });
        let removed = if unused { place.take() } else { None };
        // Release the lock of the devices first: dropping the last reference to the device may take other locks.
        drop(devices);
        removed.is_some()
    }
}
