//! Which slots of a device are in use, and by how many entries.

use alloc::vec::Vec;

use memwright_table::{Frame, OutOfMemory, TryPush};

use super::payer::SwapPayer;

/// Bits of a slot's number in an entry that tell the device, as `/proc/PID/pagemap` shows them.
const DEVICE_BITS: u32 = 5;

/// The most devices at a time.
pub const MOST_DEVICES: usize = 1 << DEVICE_BITS;

/// A slot of one of several devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The number of the device.
    pub device: usize,
    /// The number of the slot there.
    pub offset: u32,
}

impl Place {
    /// The place that an entry names by `slot`.
    #[must_use]
    pub const fn of(slot: u64) -> Self {
        Self {
            device: (slot & (MOST_DEVICES as u64 - 1)) as usize,
            offset: (slot >> DEVICE_BITS) as u32,
        }
    }

    /// The place `count` slots further on the same device.
    #[must_use]
    pub const fn after(self, count: u32) -> Self {
        Self {
            offset: self.offset.wrapping_add(count),
            ..self
        }
    }

    /// How an entry names it.
    #[must_use]
    pub const fn slot(self) -> u64 {
        (self.offset as u64) << DEVICE_BITS | self.device as u64
    }
}

/// What is known of one slot.
///
/// | `uses` | `frame` | The page |
/// |---|---|---|
/// | 0 | none | there is none: the slot is free |
/// | some | none | is outside of memory |
/// | some | one | is in memory too, for some of its owners; the slot has a reference of the frame |
/// | some | one, unwritten | is in memory alone: the device gets it when nobody shows the frame any more |
/// | 0 | one | is in memory, and here as long as the frame has references and nobody wrote to it |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Entries that name the slot, and whoever writes its page.
    pub(super) uses: u32,
    /// The number of the frame, and [`UNWRITTEN`](Self::UNWRITTEN).
    frame: u32,
}

impl Record {
    const NO_FRAME: u32 = u32::MAX;
    /// Not a number of a frame: memory of 8 TiB has fewer.
    const UNWRITTEN: u32 = 1 << 31;
    const FREE: Self = Self {
        uses: 0,
        frame: Self::NO_FRAME,
    };

    /// The frame in which the page is too.
    pub(super) fn frame(&self) -> Option<Frame> {
        (self.frame != Self::NO_FRAME).then(|| Frame::new(self.frame & !Self::UNWRITTEN))
    }

    /// Notes the frame in which the page is too. The slot has the page as well.
    pub(super) fn set_frame(&mut self, frame: Option<Frame>) {
        self.frame = frame.map_or(Self::NO_FRAME, Frame::number);
    }

    /// Notes the frame in which the page is, of which the slot has nothing yet.
    pub(super) fn set_unwritten(&mut self, frame: Frame) {
        self.frame = frame.number() | Self::UNWRITTEN;
    }

    /// Whether the page is in the frame alone.
    pub(super) fn is_unwritten(&self) -> bool {
        self.frame != Self::NO_FRAME && self.frame & Self::UNWRITTEN != 0
    }
}

/// Records in one piece of heap memory.
const CHUNK: usize = 1 << 14;
/// Slots that one word of the map tells of.
const WORD: u32 = u64::BITS;

/// The slots of one device.
pub(super) struct SlotMap {
    slots: u32,
    free: u32,
    /// A bit for each slot that is free.
    map: Vec<u64>,
    records: Vec<Vec<Record>>,
    /// Who pays for each slot, once anybody does.
    payers: Vec<Vec<u8>>,
    /// Where the search for a free slot goes on: what goes out together is kept together.
    next: u32,
    /// The device is taken out of use.
    closed: bool,
}

impl SlotMap {
    pub(super) fn new(slots: u32) -> Result<Self, OutOfMemory> {
        let words = slots.div_ceil(WORD) as usize;
        let mut map = Vec::new();
        map.try_make_room(words)?;
        for word in 0..slots.div_ceil(WORD) {
            let here = (slots - word * WORD).min(WORD);
            map.try_push(u64::MAX >> (WORD - here))?;
        }
        let mut records = Vec::new();
        let mut left = slots as usize;
        while left > 0 {
            let count = left.min(CHUNK);
            let mut chunk = Vec::new();
            chunk.try_make_room(count)?;
            for _ in 0..count {
                chunk.try_push(Record::FREE)?;
            }
            records.try_push(chunk)?;
            left -= count;
        }
        Ok(Self {
            slots,
            free: slots,
            map,
            records,
            payers: Vec::new(),
            next: 0,
            closed: false,
        })
    }

    /// Makes room to note who pays for each slot.
    pub(super) fn note_payers(&mut self) -> Result<(), OutOfMemory> {
        if !self.payers.is_empty() {
            return Ok(());
        }
        let mut payers = Vec::new();
        payers.try_make_room(self.records.len())?;
        for chunk in &self.records {
            let mut part = Vec::new();
            part.try_make_room(chunk.len())?;
            for _ in 0..chunk.len() {
                part.try_push(SwapPayer::NOBODY.raw())?;
            }
            payers.try_push(part)?;
        }
        self.payers = payers;
        Ok(())
    }

    /// Who pays for a slot.
    pub(super) fn payer(&self, slot: u32) -> SwapPayer {
        let slot = slot as usize;
        let part = self.payers.get(slot / CHUNK);
        part.map_or(SwapPayer::NOBODY, |part| {
            SwapPayer::from_raw(part[slot % CHUNK])
        })
    }

    /// `payer` pays for a slot. False if nobody can: there is no room to note it.
    pub(super) fn set_payer(&mut self, slot: u32, payer: SwapPayer) -> bool {
        let slot = slot as usize;
        match self.payers.get_mut(slot / CHUNK) {
            Some(part) => {
                part[slot % CHUNK] = payer.raw();
                true
            }
            None => payer == SwapPayer::NOBODY,
        }
    }

    /// Nobody pays for the slots of `payer` any more.
    pub(super) fn forgive(&mut self, payer: SwapPayer) {
        let all = self.payers.iter_mut().flatten();
        for noted in all.filter(|noted| **noted == payer.raw()) {
            *noted = SwapPayer::NOBODY.raw();
        }
    }

    /// Whether the device is taken out of use.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Says whether it is. False if it was so already.
    pub(super) fn set_closed(&mut self, closed: bool) -> bool {
        core::mem::replace(&mut self.closed, closed) != closed
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Takes the next free slot.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let words = self.map.len();
        let mut index = (self.next / WORD) as usize;
        // The first word is looked at twice: what lies before `next` comes last.
        let mut word = self.map[index] & (u64::MAX << (self.next % WORD));
        for _ in 0..words {
            if word != 0 {
                break;
            }
            index = (index + 1) % words;
            word = self.map[index];
        }
        let bit = word.trailing_zeros();
        self.map[index] &= !(1 << bit);
        self.free -= 1;
        let slot = index as u32 * WORD + bit;
        self.next = (slot + 1) % self.slots;
        Some(slot)
    }

    /// Makes a slot free, whose record says that nobody needs it.
    pub(super) fn give_back(&mut self, slot: u32) {
        debug_assert_eq!(*self.record(slot), Record::FREE, "a slot in use is freed");
        let word = &mut self.map[(slot / WORD) as usize];
        debug_assert!(*word & 1 << (slot % WORD) == 0, "a slot is freed twice");
        *word |= 1 << (slot % WORD);
        self.free += 1;
    }

    /// # Panics
    /// If the device has no such slot.
    pub(super) fn record(&mut self, slot: u32) -> &mut Record {
        let slot = slot as usize;
        &mut self.records[slot / CHUNK][slot % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_named_and_found_again() {
        for place in [
            Place {
                device: 0,
                offset: 0,
            },
            Place {
                device: 31,
                offset: u32::MAX,
            },
        ] {
            assert_eq!(Place::of(place.slot()), place);
            assert!(place.slot() < memwright_table::Swapped::SLOTS);
        }
    }

    #[test]
    fn neighbours_are_given_out_one_after_another_and_round_again() {
        let mut map = SlotMap::new(130).unwrap();
        let first: Vec<u32> = (0..130).map(|_| map.take().unwrap()).collect();
        assert!(first.iter().copied().eq(0..130));
        assert_eq!((map.take(), map.free()), (None, 0));
        for slot in [129, 3, 64] {
            map.give_back(slot);
        }
        assert_eq!(map.free(), 3);
        let again: Vec<u32> = (0..3).map(|_| map.take().unwrap()).collect();
        assert_eq!(again, [3, 64, 129]);
        assert_eq!(map.free(), 0);
        map.give_back(128);
        map.give_back(5);
        assert_eq!((map.take(), map.take()), (Some(5), Some(128)));
    }
}
