//! Swap: devices, slots, swap-out and swap-in.
//!
//! ```text
//! device.rs     the interface of a device    slot.rs  which slots are in use, and by how many entries
//! cache.rs      pages in memory and in a slot
//! transfers.rs  transfers to and from devices
//! reads.rs      reads that are completed after the locks of the fault are released
//! stores.rs     the list of the page stores of shared memory
//! remove.rs     swapoff
//! memcg.rs      memcg charges of slots
//! ```
//!
//! Code in other folders: `reclaim/` selects the pages to reclaim and writes them, `shmem/swap.rs` swaps shared memory
//! out and in, and `fault/swap.rs` and `fault/swap_around.rs` read pages in.
//!
//! # Swap-out and swap-in of a page
//!
//! The entry of a page that was swapped out names a slot ([`memwright_table::Swapped`]) and carries the bits that must
//! survive: exclusive, soft-dirty, uffd-wp, tracking. A load swaps in an exclusive page clean, and maps it writable
//! where [`writable`](crate::writable) permits it. The slot keeps its copy, so that swapping the page out again costs
//! no write as long as the page stays clean (rule: clean-writable-is-private). A store maps the page writable and
//! dirty, and frees the slot. A page with several owners is read once, and each owner finds the same frame. Pages that
//! are read together are read into folios where they are aligned. Each page of a folio still has its own entry,
//! reference and slot.
//!
//! A page of shared memory has one owner, the object, whose store names the slot.
//!
//! If a device takes time, a read is done in two halves. The first half submits the reads under the locks of the fault.
//! The second half completes the reads after the fault has released all locks, and maps the pages whose entries still
//! name their slots: `fault/swap_wait.rs`.

pub(crate) mod asker;
pub(crate) mod cache;
pub(crate) mod cached_pages;
pub(crate) mod device;
pub(crate) mod memcg;
pub(crate) mod place;
pub(crate) mod reads;
pub(crate) mod remove;
pub(crate) mod slot;
pub(crate) mod stores;
pub(crate) mod transfers;

pub use device::{DeviceError, DeviceUse, Direction, Submission, SwapDevice, Ticket, Transfer};
pub use place::{MOST_DEVICES, Place};

use alloc::sync::Arc;
use alloc::vec::Vec;
use memwright_table::sync::{Lock, Rank};
use memwright_table::{Frame, Frames, Machine, OutOfMemory, TryPush};

use crate::swap::cached_pages::CachedPages;
use crate::swap::memcg::SwapCharges;
use crate::swap::reads::Reads;
use crate::swap::slot::{Record, SlotMap};
use crate::swap::stores::Stores;
use crate::types::memcg::Memcg;

/// The maximum number of slots that a search returns. The search holds the lock of the devices.
const CACHED_AT_A_TIME: usize = 32;

/// The maximum number of slots that a search examines per acquisition of the lock of the devices.
const LOOKED_AT_A_TIME: usize = 4096;

/// A swap device in use, and its slot map.
pub(crate) struct Active<M: Machine> {
    device: Arc<dyn SwapDevice<M>>,
    pub(crate) slots: SlotMap,
    /// The priority: devices with a higher priority are filled first.
    priority: i32,
    /// The maximum number of transfers that the device has pending at a time.
    most_pending: usize,
}

/// A slot that holds a copy of a page in memory, as [`Swap::with_copy`] found it.
struct Copied<'a> {
    slot: u64,
    record: &'a mut Record,
    /// Whether the device is closed. No further entry may then name its slots.
    is_closed: bool,
}

/// The swap devices of a machine and their slots.
pub struct Swap<M: Machine> {
    pub(crate) devices: Lock<Vec<Option<Active<M>>>, M::Threads>,
    /// The swap charges of the memcgs.
    pub(crate) bills: SwapCharges<M::Threads>,
    /// The number of slots whose pages are in memory as well.
    cached: CachedPages,
    /// The reads that faults have begun and that are still to be completed.
    reads: Reads<M>,
    /// The list of the page stores of objects with reclaimable pages.
    pub(crate) stores: Stores<M>,
    /// The slot at which the next search for frames that no entry maps begins.
    pub(crate) shed_next: Lock<Place, M::Threads>,
}

impl<M: Machine> Swap<M> {
    pub(crate) fn new() -> Self {
        Self {
            devices: Lock::new(Rank::Swap, Vec::new()),
            bills: SwapCharges::new(),
            cached: CachedPages::new(),
            reads: Reads::new(),
            stores: Stores::new(),
            shed_next: Lock::new(Rank::Swap, Place::default()),
        }
    }

    /// Adds `device`. Returns its number, or `None` if there are too many devices.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the slot map of the device cannot be allocated.
    pub(crate) fn add(
        &self,
        device: Arc<dyn SwapDevice<M>>,
        priority: i32,
    ) -> Result<Option<usize>, OutOfMemory> {
        let mut slots = SlotMap::new(device.slots())?;
        let mut devices = self.devices.lock();
        let others = devices.iter().flatten().map(|active| active.most_pending);
        let most_pending = device.most_pending();
        self.reads.make_room(most_pending + others.sum::<usize>())?;
        // `open_memcg` allocated charge records only for the devices that existed at that time.
        if self.bills.are_open() {
            slots.note_memcgs()?;
        }
        let new = Active {
            slots,
            device,
            priority,
            most_pending,
        };
        let place = devices.iter().position(Option::is_none);
        match place {
            Some(number) => {
                devices[number] = Some(new);
                Ok(Some(number))
            }
            None if devices.len() == MOST_DEVICES => Ok(None),
            None => {
                devices.try_push(Some(new))?;
                Ok(Some(devices.len() - 1))
            }
        }
    }

    /// Returns the use of each device.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the list cannot be allocated.
    pub fn devices(&self) -> Result<Vec<DeviceUse>, OutOfMemory> {
        let mut uses = Vec::new();
        uses.try_make_room(MOST_DEVICES)?;
        let mut keepers = Vec::new();
        keepers.try_make_room(MOST_DEVICES)?;
        let devices = self.devices.lock();
        for (number, active) in devices.iter().enumerate() {
            let Some(active) = active else { continue };
            uses.try_push(DeviceUse {
                number,
                slots: active.slots.slots(),
                used: active.slots.slots() - active.slots.free(),
                priority: active.priority,
                stored: 0,
            })?;
            keepers.try_push(active.device.clone())?;
        }
        drop(devices);
        // Call the device after the lock of the devices is released, because a device has a lock of the same rank.
        for (shown, device) in uses.iter_mut().zip(&keepers) {
            shown.stored = device.stored();
        }
        Ok(uses)
    }

    /// Returns the number of slots of all devices, and the number of slots in use.
    pub fn totals(&self) -> (u64, u64) {
        let devices = self.devices.lock();
        let each = devices.iter().flatten().map(|active| &active.slots);
        each.fold((0, 0), |(all, used), slots| {
            let taken = slots.slots() - slots.free();
            (all + u64::from(slots.slots()), used + u64::from(taken))
        })
    }

    /// Returns the number of pages that are both in memory and in a slot (`NR_SWAPCACHE` of Linux 7.2).
    pub fn cached_pages(&self) -> u64 {
        self.cached.get()
    }

    /// Divides `unit` by the number of entries that name a slot, and returns the sum of the results over `count` slots
    /// from `slot` on (`smaps_pte_entry` in `fs/proc/task_mmu.c` of Linux 7.2).
    pub fn shares(&self, slot: u64, count: u64, unit: u64) -> u64 {
        self.with_slots(slot, |slots, offset| {
            let end = offset.saturating_add(count as u32).min(slots.slots());
            let uses = (offset..end).map(|offset| slots.record(offset).uses);
            uses.map(|uses| unit / u64::from(uses.max(1))).sum()
        })
    }

    /// Returns the number of slots in use, or 0 if another thread holds the lock of the devices. For reports of
    /// failures, which must not wait.
    pub(crate) fn slots_in_use(&self) -> u64 {
        let devices = self.devices.try_lock();
        devices.map_or(0, |devices| {
            let each = devices.iter().flatten().map(|active| &active.slots);
            each.map(|slots| u64::from(slots.slots() - slots.free()))
                .sum()
        })
    }

    /// Returns whether there is a device.
    pub fn is_on(&self) -> bool {
        self.devices.lock().iter().any(Option::is_some)
    }

    /// Returns the number of objects that are charged to `memcg` or to a memcg below it.
    pub fn objects_of(&self, memcg: Memcg) -> u64 {
        self.bills.objects(memcg)
    }

    /// Returns the number of slots that are charged to `memcg` or to a memcg below it.
    pub fn paid_by(&self, memcg: Memcg) -> u64 {
        self.bills.slots(memcg)
    }

    /// Returns the number of slot allocations, for `memcg` or a memcg below it, that a limit prevented.
    pub fn refused_to(&self, memcg: Memcg) -> u64 {
        self.bills.refused(memcg)
    }

    /// Returns the number of slot allocations, for `memcg` or a memcg below it, that failed because no slot was free.
    pub fn full_for(&self, memcg: Memcg) -> u64 {
        self.bills.full(memcg)
    }

    /// Limits `memcg`, together with the memcgs below it, to `most` slots from now on. Slots that are charged already
    /// remain charged, even if they exceed the limit.
    pub fn limit_memcg(&self, memcg: Memcg, most: u64) {
        self.bills.limit(memcg, most);
    }

    /// Allocates a slot with one use, charged to `memcg`. Returns `None` if `memcg` or a memcg above it is at its
    /// limit, or if no slot is free.
    pub(crate) fn reserve(&self, memcg: Memcg) -> Option<u64> {
        let mut devices = self.devices.lock();
        if !self.bills.allows(memcg) {
            return None;
        }
        let best = devices
            .iter_mut()
            .enumerate()
            .filter_map(|(number, active)| Some((number, active.as_mut()?)))
            .filter(|(_, active)| !active.slots.is_closed() && active.slots.free() > 0)
            .max_by_key(|(number, active)| (active.priority, core::cmp::Reverse(*number)));
        let Some((device, active)) = best else {
            self.bills.note_full(memcg);
            return None;
        };
        let offset = active.slots.take()?;
        active.slots.record(offset).uses = 1;
        if active.slots.set_memcg(offset, memcg) {
            self.bills.charge(memcg);
        }
        Some(Place { device, offset }.slot())
    }

    /// Searches from `from` on for slots that have uses and whose pages are in memory as well. Returns the slots that
    /// it found, and the slot at which to continue, or `None` if all slots were examined.
    pub(crate) fn cached_from(
        &self,
        from: Place,
    ) -> ([Option<u64>; CACHED_AT_A_TIME], Option<Place>) {
        let mut found = [None; CACHED_AT_A_TIME];
        let (mut count, mut looked) = (0, 0);
        let mut devices = self.devices.lock();
        for (device, active) in devices.iter_mut().enumerate().skip(from.device) {
            let Some(active) = active else { continue };
            let first = if device == from.device {
                from.offset
            } else {
                0
            };
            for offset in first..active.slots.slots() {
                let place = Place { device, offset };
                if count == CACHED_AT_A_TIME || looked == LOOKED_AT_A_TIME {
                    return (found, Some(place));
                }
                looked += 1;
                let record = active.slots.record(offset);
                if record.uses > 0 && record.frame().is_some() {
                    found[count] = Some(place.slot());
                    count += 1;
                }
            }
        }
        (found, None)
    }

    /// Calls `act` with the record of the slot that holds a copy of the page in `frame`, if there is one.
    fn with_copy<R>(
        &self,
        frames: &Frames<M>,
        frame: Frame,
        act: impl FnOnce(Copied<'_>) -> R,
    ) -> Option<R> {
        let slot = frames.slot_of(frame)?;
        let place = Place::of(slot);
        let mut devices = self.devices.lock();
        // Check again under the lock: after `slot_of` was read, the frame may have been removed from the slot's record,
        // and the device may have been removed.
        let active = devices.get_mut(place.device)?.as_mut()?;
        let is_closed = active.slots.is_closed();
        let record = active.slots.record(place.offset);
        let found = frames.slot_of(frame) == Some(slot) && record.frame() == Some(frame);
        found.then(|| {
            act(Copied {
                slot,
                record,
                is_closed,
            })
        })
    }

    /// Calls `act` with the record of each of `slots`, and with its index in `slots`.
    ///
    /// # Panics
    /// As for `with_slots`.
    fn with_records(&self, slots: &[u64], mut act: impl FnMut(usize, &mut Record)) {
        let mut devices = self.devices.lock();
        for (number, &slot) in slots.iter().enumerate() {
            let place = Place::of(slot);
            let active = devices.get_mut(place.device).and_then(Option::as_mut);
            let active = active.unwrap_or_else(|| panic!("slot {slot:#x} is of no device"));
            act(number, active.slots.record(place.offset));
        }
    }

    fn device_of(&self, slot: u64) -> Arc<dyn SwapDevice<M>> {
        let place = Place::of(slot);
        let devices = self.devices.lock();
        let active = devices.get(place.device).and_then(Option::as_ref);
        let active = active.unwrap_or_else(|| panic!("slot {slot:#x} is of no device"));
        active.device.clone()
    }

    /// Frees a slot whose record has no use and no frame.
    fn free(&self, frames: &Frames<M>, slot: u64) {
        // No other thread can reach the slot before it is freed, because it has no use and no frame.
        self.device_of(slot).discard(frames, Place::of(slot).offset);
        self.with_slots(slot, |slots, offset| {
            self.bills.release(slots.memcg(offset));
            slots.give_back(offset);
        });
    }
}
