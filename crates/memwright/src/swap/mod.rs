//! Pages outside of memory: devices, slots, and the way out and back.
//!
//! ```text
//! device.rs  what a device does          slot.rs  which slots are in use, and by whom
//! cache.rs   pages that are in memory and in a slot
//! around.rs  how many come back together   folio.rs  and as folios
//! out.rs     pages leave                 ../fault/swap.rs  a page comes back
//! reclaim.rs which leave when memory is short
//! object.rs  pages of shared memory   out_object.rs  which of them leave, as those tell who show them
//! unshown.rs those that nobody shows
//! lazy.rs    pages whose contents may be lost
//! remove.rs  a device is taken out of use
//! payer.rs   who pays for slots
//! transfers.rs  what devices were asked to do, and did
//! ```
//!
//! # A page's way
//!
//! An entry of a page that left names a slot ([`memwright_table::Swapped`]) and carries what must survive:
//! exclusivity, soft-dirty, userfaultfd's write protection, tracking. A load of an exclusive page maps it writable
//! at once, where [the rule](crate::writable) allows it, and clean: the slot stays, so that the page goes out again
//! for nothing as long as nobody writes to it (design rule 8). A store maps it writable and dirty, and the slot is
//! free. A page of several owners comes back once, and each of them finds the same frame. Pages that come back
//! together come back in folios where they are aligned: each page of one still has its own entry, reference and slot.
//!
//! A page of shared memory has one owner, the object, whose store names the slot.

mod around;
mod cache;
mod device;
mod folio;
mod lazy;
mod object;
mod out;
mod out_object;
mod payer;
mod reclaim;
mod remove;
mod slot;
mod transfers;
mod unshown;

pub(crate) use around::{MOST, Window, WindowCell};
pub(crate) use cache::Cached;
use cache::CachedPages;
pub use device::{DeviceError, Direction, Submission, SwapDevice, Ticket, Transfer};
pub(crate) use folio::ComingFrames;
pub use object::{Leaving, Left, ObjectPlace};
pub use payer::{MOST_PAYERS, SwapPayer};
pub(crate) use reclaim::Choice;
pub use reclaim::Effort;
pub use slot::{MOST_DEVICES, Place};
pub(crate) use transfers::Transfers;

use alloc::sync::Arc;
use alloc::vec::Vec;

use memwright_table::sync::{Lock, Rank};
use memwright_table::{Frame, Frames, Machine, OutOfMemory, Rising, Shared, TryPush};

use payer::Bills;
use slot::{Record, SlotMap};

/// Slots that are looked up under one lock.
const CACHED_AT_A_TIME: usize = 32;

/// Slots that are looked at under one lock.
const LOOKED_AT_A_TIME: usize = 4096;

/// A device that pages go out to.
struct Active<M: Machine> {
    device: Arc<dyn SwapDevice<M>>,
    slots: SlotMap,
    /// Devices of a higher one are filled first.
    priority: i32,
}

/// A slot with a copy of a page in memory.
struct Copied<'a> {
    slot: u64,
    record: &'a mut Record,
    /// The device is taken out of use: no entry is to name the slot anew.
    is_closed: bool,
}

/// What a device keeps, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// Its number.
    pub number: usize,
    /// Slots.
    pub slots: u32,
    /// Of these, in use.
    pub used: u32,
    /// Devices of a higher one are filled first.
    pub priority: i32,
    /// Bytes of memory that its pages take.
    pub stored: u64,
}

/// All slots of a machine.
pub struct Swap<M: Machine> {
    devices: Lock<Vec<Option<Active<M>>>>,
    /// What each payer has.
    bills: Bills,
    /// Slots with a copy of their page in memory.
    cached: CachedPages,
    /// Objects whose pages may leave.
    stores: Lock<Rising<Shared<crate::object::Store<M>>>>,
    /// Where the search for frames that slots alone refer to goes on.
    shed_next: Lock<Place>,
}

impl<M: Machine> Swap<M> {
    pub(crate) fn new() -> Self {
        Self {
            devices: Lock::new(Rank::Swap, Vec::new()),
            bills: Bills::new(),
            cached: CachedPages::new(),
            stores: Lock::new(Rank::ObjectRegistry, Rising::new()),
            shed_next: Lock::new(Rank::Swap, Place::default()),
        }
    }

    /// Lets pages go out to `device` from now on; returns its number, or `None` if there are too many.
    ///
    /// # Errors
    /// No heap for what is to be known of its slots.
    pub fn add(
        &self,
        device: Arc<dyn SwapDevice<M>>,
        priority: i32,
    ) -> Result<Option<usize>, OutOfMemory> {
        let mut slots = SlotMap::new(device.slots())?;
        let mut devices = self.devices.lock();
        // Whoever opens the first payer does so for the devices that there are.
        if self.bills.are_open() {
            slots.note_payers()?;
        }
        let new = Active {
            slots,
            device,
            priority,
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

    /// The devices.
    ///
    /// # Errors
    /// No heap for the list.
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
        // A device has a lock of the same rank.
        for (shown, device) in uses.iter_mut().zip(&keepers) {
            shown.stored = device.stored();
        }
        Ok(uses)
    }

    /// Slots of all devices, and those in use.
    pub fn totals(&self) -> (u64, u64) {
        let devices = self.devices.lock();
        let each = devices.iter().flatten().map(|active| &active.slots);
        each.fold((0, 0), |(all, used), slots| {
            let taken = slots.slots() - slots.free();
            (all + u64::from(slots.slots()), used + u64::from(taken))
        })
    }

    /// Pages that are in memory and in a slot (`NR_SWAPCACHE` of Linux 7.2).
    pub fn cached_pages(&self) -> u64 {
        self.cached.get()
    }

    /// Divides `unit` by the number of entries that name a slot, and adds the results up for `count` slots from `slot` on
    /// (`smaps_pte_entry` in `fs/proc/task_mmu.c` of Linux 7.2).
    pub fn shares(&self, slot: u64, count: u64, unit: u64) -> u64 {
        self.with_slots(slot, |slots, offset| {
            let end = offset.saturating_add(count as u32).min(slots.slots());
            let uses = (offset..end).map(|offset| slots.record(offset).uses);
            uses.map(|uses| unit / u64::from(uses.max(1))).sum()
        })
    }

    /// Slots in use, as far as that can be told without waiting: for reports of failures too.
    pub(crate) fn slots_in_use(&self) -> u64 {
        let devices = self.devices.try_lock();
        devices.map_or(0, |devices| {
            let each = devices.iter().flatten().map(|active| &active.slots);
            each.map(|slots| u64::from(slots.slots() - slots.free()))
                .sum()
        })
    }

    /// Whether there is a device.
    pub fn is_on(&self) -> bool {
        self.devices.lock().iter().any(Option::is_some)
    }

    /// Slots that `payer` pays for.
    pub fn paid_by(&self, payer: SwapPayer) -> u64 {
        self.bills.slots(payer)
    }

    /// How often `payer` was refused a slot because of its limit.
    pub fn refused_to(&self, payer: SwapPayer) -> u64 {
        self.bills.refused(payer)
    }

    /// How often `payer` got no slot because none was free.
    pub fn full_for(&self, payer: SwapPayer) -> u64 {
        self.bills.full(payer)
    }

    /// Lets `payer` have at most `most` slots from now on. What it has more it keeps.
    pub fn limit_payer(&self, payer: SwapPayer, most: u64) {
        let _devices = self.devices.lock();
        self.bills.limit(payer, most);
    }

    /// Makes `payer` a new one without slots and limits: for slots and objects of the one before nobody pays from now on.
    ///
    /// # Errors
    /// No heap to note who pays for each slot.
    pub fn open_payer(&self, payer: SwapPayer) -> Result<(), OutOfMemory> {
        self.forgive_objects(payer);
        let mut devices = self.devices.lock();
        self.bills.open(payer);
        for active in devices.iter_mut().flatten() {
            active.slots.forgive(payer);
            active.slots.note_payers()?;
        }
        Ok(())
    }

    /// Takes a slot for one entry to name, if `payer` may have one more.
    fn reserve(&self, payer: SwapPayer) -> Option<u64> {
        let mut devices = self.devices.lock();
        if !self.bills.allows(payer) {
            return None;
        }
        let best = devices
            .iter_mut()
            .enumerate()
            .filter_map(|(number, active)| Some((number, active.as_mut()?)))
            .filter(|(_, active)| !active.slots.is_closed() && active.slots.free() > 0)
            .max_by_key(|(number, active)| (active.priority, core::cmp::Reverse(*number)));
        let Some((device, active)) = best else {
            self.bills.note_full(payer);
            return None;
        };
        let offset = active.slots.take()?;
        active.slots.record(offset).uses = 1;
        if active.slots.set_payer(offset, payer) {
            self.bills.charge(payer);
        }
        Some(Place { device, offset }.slot())
    }

    /// Some slots from `from` on whose pages are in memory too, and where to go on, if there are more slots.
    fn cached_from(&self, from: Place) -> ([Option<u64>; CACHED_AT_A_TIME], Option<Place>) {
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

    /// Calls `act` with the record of the slot that has a copy of the page in `frame`, if one has.
    fn with_copy<R>(
        &self,
        frames: &Frames<M>,
        frame: Frame,
        act: impl FnOnce(Copied<'_>) -> R,
    ) -> Option<R> {
        let slot = frames.slot_of(frame)?;
        let place = Place::of(slot);
        let mut devices = self.devices.lock();
        // The slot may have been taken from the frame since, and the device out of use.
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

    /// Calls `act` with the slots of the device of `slot`.
    ///
    /// # Panics
    /// If there is no such device: an entry names a slot that was never given out.
    fn with_slots<R>(&self, slot: u64, act: impl FnOnce(&mut SlotMap, u32) -> R) -> R {
        let place = Place::of(slot);
        let mut devices = self.devices.lock();
        let active = devices.get_mut(place.device).and_then(Option::as_mut);
        let active = active.unwrap_or_else(|| panic!("slot {slot:#x} is of no device"));
        act(&mut active.slots, place.offset)
    }

    fn device_of(&self, slot: u64) -> Arc<dyn SwapDevice<M>> {
        let place = Place::of(slot);
        let devices = self.devices.lock();
        let active = devices.get(place.device).and_then(Option::as_ref);
        let active = active.unwrap_or_else(|| panic!("slot {slot:#x} is of no device"));
        active.device.clone()
    }

    /// Frees a slot whose record says that nobody needs it.
    fn free(&self, frames: &Frames<M>, slot: u64) {
        // Nobody else knows of the slot until it is given back.
        self.device_of(slot).discard(frames, Place::of(slot).offset);
        self.with_slots(slot, |slots, offset| {
            self.bills.release(slots.payer(offset));
            slots.give_back(offset);
        });
    }
}
