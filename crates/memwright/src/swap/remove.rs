//! A device is taken out of use (Linux 7.2 `mm/swapfile.c`, `swapoff` and `try_to_unuse`).
//!
//! First no page goes out to it any more. Then every address space takes back what it has there
//! ([`AddressSpace::bring_back`](crate::AddressSpace::bring_back)), and slots that only keep copies of pages in memory
//! give these up. When none is in use the device is gone. Until then it can be opened again: nothing is lost if there
//! is no memory for what it keeps.

use memwright_table::{Frames, Machine};

use super::{CACHED_AT_A_TIME, Place, Swap};

impl<M: Machine> Swap<M> {
    /// Lets no page go out to the device from now on, or lets them again. False if there is no such device, or it is
    /// so already.
    pub(crate) fn set_closed(&self, number: usize, closed: bool) -> bool {
        let mut devices = self.devices.lock();
        let active = devices.get_mut(number).and_then(Option::as_mut);
        active.is_some_and(|active| active.slots.set_closed(closed))
    }

    /// Slots of the devices that pages go out to.
    pub(crate) fn open_slots(&self) -> u64 {
        let devices = self.devices.lock();
        let open = devices.iter().flatten().map(|active| &active.slots);
        open.filter(|slots| !slots.is_closed())
            .map(|slots| u64::from(slots.slots()))
            .sum()
    }

    /// Frees the slots of the device that keep copies of pages in memory.
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

    /// Takes the copies from the frames of the next slots from `from` on that no entry names; the slots are the
    /// caller's to free.
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
            // The frame is not freed before it has left the slot, which takes this lock. The page is written out again
            // when it leaves: only who has a copy is asked whether the page is clean.
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

    /// Takes a closed device away, if none of its slots is in use. False if one is.
    pub(crate) fn remove(&self, number: usize) -> bool {
        let mut devices = self.devices.lock();
        let Some(place) = devices.get_mut(number) else {
            return false;
        };
        let unused = place.as_ref().is_some_and(|active| {
            active.slots.is_closed() && active.slots.free() == active.slots.slots()
        });
        let removed = if unused { place.take() } else { None };
        // Whoever drops the device last may take other locks.
        drop(devices);
        removed.is_some()
    }
}
