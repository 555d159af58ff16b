//! Pages of shared memory leave and come back (Linux 7.2 `mm/shmem.c`, `shmem_writeout` and `shmem_swapin_folio`).
//!
//! Nobody's table names the slot of such a page: the store of the object does, which is its only user for as long as
//! nobody reads it. A device is waited for without the object's lock. Who reads a page is a user of its slot meanwhile, so that
//! this is given to no other page; of several who read it the first one's frame is the page. A page that is being
//! written is marked in the store, and whoever asks for it takes the mark away: then it stays. A page that came back
//! has no slot any more, as on Linux.

use memwright_table::mistake::{Mistake, planted};
use memwright_table::{FrameKind, FrameRef, Machine, Shared, Slots, TryPush};

use super::{DeviceError, Direction, Place, Swap, SwapPayer, Transfers};
use crate::error::ObjectError;
use crate::memory::Memory;
use crate::object::{CLUSTER, Cluster, Mappings, Store, Stored};
use crate::stats::Row;

/// Pages of an object that are to leave.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// Which.
    pub pages: Cluster,
    /// Only those that nobody used since they were looked at before.
    pub unused: bool,
    /// Who pays for their slots.
    pub payer: SwapPayer,
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many left.
    pub pages: u64,
    /// How many were written to where the object is kept for that, if it is not swap.
    pub written_back: u64,
    /// There was no room for more.
    pub is_full: bool,
}

/// A page on its way out.
struct OnItsWay<'a, M: Machine> {
    index: u64,
    /// Nobody may free the frame while the device reads it.
    frame: FrameRef<'a, M>,
    slot: u64,
}

impl<M: Machine> Store<M> {
    /// Brings page `index` back if it is in swap. Whether the device was read for it.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`]: the page is where it was.
    pub(crate) fn bring_in(&self, memory: &Memory<M>, index: u64) -> Result<bool, ObjectError> {
        let (frames, swap) = (&**memory.frames(), &**memory.swap());
        let slot = {
            let state = self.lock();
            let Some(Stored::InSwap(slot)) = state.pages.stored(index) else {
                return Ok(false);
            };
            if !planted(Mistake::SharedSlotReused) {
                swap.share(frames, slot);
            }
            state.choose(memory, index);
            slot
        };
        let read = read(memory, slot);
        let frame = read.inspect_err(|_| swap.release(frames, slot))?;
        if self.lock().pages.come_back(index, slot, frame.frame()) {
            let _ = frame.into_raw();
            swap.release(frames, slot);
        }
        if !planted(Mistake::SharedSlotReused) {
            swap.release(frames, slot);
        }
        Ok(true)
    }

    /// Brings the pages from `from` on back that are on the device with this number, and takes them off `left`. Returns
    /// where to go on when these were taken, or `None` at the end.
    fn bring_back(
        &self,
        memory: &Memory<M>,
        device: usize,
        from: u64,
        left: &mut u64,
    ) -> Result<Option<u64>, ObjectError> {
        let mut next = from;
        while let Some(index) = self.next_on(device, next) {
            if *left == 0 {
                return Ok(Some(index));
            }
            *left -= 1;
            self.bring_in(memory, index)?;
            next = index + 1;
        }
        Ok(None)
    }

    /// The first page from `from` on that is on the device with this number.
    fn next_on(&self, device: usize, from: u64) -> Option<u64> {
        let state = self.lock();
        if state.pages.swapped() == 0 {
            return None;
        }
        let mut next = state.pages.next(from);
        while let Some((index, stored)) = next {
            match stored {
                Stored::InSwap(slot) if Place::of(slot).device == device => return Some(index),
                Stored::InSwap(_) | Stored::InMemory(_) => {}
            }
            next = state.pages.next(index + 1);
        }
        None
    }

    /// Sends those of `pages` out that nobody has but the store, once nobody shows them any more. Without a lock of
    /// an address space.
    pub(crate) fn send_out(
        &self,
        memory: &Memory<M>,
        mappings: &Mappings<M>,
        pages: Cluster,
        payer: SwapPayer,
    ) -> Left {
        // Who finds a page from now on finds it again before it leaves, or is found out.
        mappings.stale();
        if !planted(Mistake::SharedOutShown) {
            for run in pages.runs() {
                mappings.withdraw(run.start, run.end);
            }
        }
        let (ways, mut is_full) = self.begin(memory, pages, payer);
        let (frames, swap) = (&**memory.frames(), &**memory.swap());
        let mut transfers = Transfers::<M, CLUSTER>::new();
        for (number, way) in ways.iter().enumerate() {
            if let Some(way) = way {
                let page = (way.slot, way.frame.frame());
                transfers.begin(swap, frames, number, Direction::Out, page);
            }
        }
        let (mut out, mut written) = (0, 0);
        for (number, way) in ways.into_iter().enumerate() {
            let Some(way) = way else { continue };
            let taken = transfers.finish(frames, number);
            written += u64::from(taken.is_ok());
            is_full |= taken == Err(DeviceError::Full);
            memory.count(Row::SwapRefused, u64::from(taken.is_err()));
            out += u64::from(self.end(memory, &way, taken.is_ok()));
        }
        memory.count(Row::SwapOut, out);
        memory.count(Row::SwapWritten, written);
        Left {
            pages: out,
            written_back: 0,
            is_full,
        }
    }

    /// Marks the pages that go, and gives each a slot. Whether there were too few slots.
    fn begin<'a>(
        &self,
        memory: &'a Memory<M>,
        pages: Cluster,
        payer: SwapPayer,
    ) -> ([Option<OnItsWay<'a, M>>; CLUSTER], bool) {
        let mut ways = [const { None }; CLUSTER];
        let (frames, swap) = (&**memory.frames(), &**memory.swap());
        let state = self.lock();
        for (way, index) in ways.iter_mut().zip(pages.iter()) {
            let Some(Stored::InMemory(frame)) = state.pages.stored(index) else {
                continue;
            };
            state.pages.part_at(index);
            let held = frames.references(frame) != 1 || frames.pins(frame) != 0;
            if held && !planted(Mistake::SharedOutShown) {
                continue;
            }
            let Some(slot) = swap.reserve(payer) else {
                return (ways, true);
            };
            state.pages.begin_leaving(index);
            *way = Some(OnItsWay {
                index,
                frame: frames.share(frame),
                slot,
            });
        }
        (ways, false)
    }

    /// Puts the slot in the page's place, if the device has taken the page and nobody asked for it since; else the page
    /// stays. Whether it left.
    fn end(&self, memory: &Memory<M>, way: &OnItsWay<'_, M>, taken: bool) -> bool {
        let frames = &**memory.frames();
        let frame = way.frame.frame();
        let mut state = self.lock();
        let left = taken && state.pages.leave(way.index, frame, way.slot);
        if left {
            // The store's reference; the caller has another.
            drop(frames.adopt(frame));
        } else {
            state.pages.end_leaving(way.index, frame);
            memory.swap().release(frames, way.slot);
        }
        left
    }
}

/// A frame with what is in `slot`.
fn read<M: Machine>(memory: &Memory<M>, slot: u64) -> Result<FrameRef<'_, M>, ObjectError> {
    let frame = memory.frames().allocate(0, FrameKind::Object)?;
    if memory
        .swap()
        .read(memory.frames(), slot, frame.frame())
        .is_err()
    {
        memory.count(Row::SwapFailed, 1);
        return Err(ObjectError::Io);
    }
    memory.count(Row::SwapIn, 1);
    Ok(frame)
}

/// Where a round through all objects with pages in swap is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectPlace {
    /// The object to go on with, or the first after it.
    number: u64,
    /// The page there.
    index: u64,
}

/// A store that may have pages in swap.
pub(super) struct Listed<M: Machine> {
    /// Rises with each entry of the list: the list is sorted by it.
    number: u64,
    store: Shared<Store<M>>,
}

impl<M: Machine> Swap<M> {
    /// Sees to it that whoever takes a device out of use finds the store. False if there is no heap for that.
    pub(crate) fn list(&self, store: &Shared<Store<M>>) -> bool {
        let mut stores = self.stores.lock();
        let mut state = store.lock();
        if !state.is_listed {
            let number = stores.last().map_or(0, |last: &Listed<M>| last.number + 1);
            let store = store.clone();
            state.is_listed = stores.try_push(Listed { number, store }).is_ok();
        }
        state.is_listed
    }

    /// How many slots have pages of objects.
    pub fn slots_of_objects(&self) -> u64 {
        let stores = self.stores.lock();
        let count = |listed: &Listed<M>| listed.store.lock().pages.swapped();
        stores.iter().map(count).sum()
    }

    /// Takes a store off the list.
    pub(crate) fn delist(&self, store: &Shared<Store<M>>) {
        let mut stores = self.stores.lock();
        let found = stores
            .iter()
            .position(|listed| Shared::ptr_eq(&listed.store, store));
        let listed = found.map(|position| stores.remove(position));
        drop(stores);
        drop(listed);
    }

    /// The listed store with this number, or the first after it.
    fn listed(&self, number: u64) -> Option<(u64, Shared<Store<M>>)> {
        let stores = self.stores.lock();
        let position = stores.partition_point(|listed| listed.number < number);
        let listed = stores.get(position)?;
        Some((listed.number, listed.store.clone()))
    }
}

impl<M: Machine> Memory<M> {
    /// Brings pages of objects back that are on swap device `device`, about `most` of them, from `place` on, which
    /// becomes where to go on. Whether the round is over.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`]; what came back before stays.
    pub fn bring_objects_back(
        &self,
        device: usize,
        place: &mut ObjectPlace,
        most: u64,
    ) -> Result<bool, ObjectError> {
        let mut left = most;
        while let Some((number, store)) = self.swap().listed(place.number) {
            if number != place.number {
                *place = ObjectPlace { number, index: 0 };
            }
            if let Some(next) = store.bring_back(self, device, place.index, &mut left)? {
                place.index = next;
                return Ok(false);
            }
            *place = ObjectPlace {
                number: number + 1,
                index: 0,
            };
        }
        Ok(true)
    }
}
