//! The slot map of a device: it records which slots are in use, and by how many entries.

use alloc::vec::Vec;
use memwright_table::{Frame, OutOfMemory, TryPush};

use crate::types::memcg::Memcg;

/// The state of one slot.
///
/// | `uses` | `frame` | The page |
/// |---|---|---|
/// | 0 | none | there is none: the slot is free |
/// | some | none | is only in the slot |
/// | some | one | is in memory too, for some of its owners; the slot has a reference to the frame |
/// | some | one that records no slot | is in the slot, and is being read into the frame |
/// | some | one, unwritten | is only in memory: it is written to the device once no entry maps the frame |
/// | 0 | one | is in memory; the slot keeps a copy while the frame has references and the page is clean |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of swap entries that name the slot, plus the number of transfers that keep it allocated.
    pub(super) uses: u32,
    /// The number of the frame, with the flag [`UNWRITTEN`](Self::UNWRITTEN) if the page is not in the slot yet.
    frame: u32,
}

impl Record {
    const NO_FRAME: u32 = u32::MAX;

    /// The flag in `frame` for a page that is not in the slot yet. No frame number has this bit: memory is smaller than
    /// 8 TiB.
    const UNWRITTEN: u32 = 1 << 31;

    const FREE: Self = Self {
        uses: 0,
        frame: Self::NO_FRAME,
    };

    /// Returns the frame that holds the page, if it is in memory.
    pub(super) fn frame(&self) -> Option<Frame> {
        (self.frame != Self::NO_FRAME).then(|| Frame::new(self.frame & !Self::UNWRITTEN))
    }

    /// Sets the frame that holds the page, or removes it. The slot holds the page as well.
    pub(super) fn set_frame(&mut self, frame: Option<Frame>) {
        self.frame = frame.map_or(Self::NO_FRAME, Frame::number);
    }

    /// Sets the frame that holds the page, which is not in the slot yet.
    pub(super) fn set_unwritten(&mut self, frame: Frame) {
        self.frame = frame.number() | Self::UNWRITTEN;
    }

    /// Returns whether the page is in the frame and not in the slot yet.
    pub(super) fn is_unwritten(&self) -> bool {
        self.frame != Self::NO_FRAME && self.frame & Self::UNWRITTEN != 0
    }
}

/// The number of records that are allocated together.
const CHUNK: usize = 1 << 14;

/// The number of slots in a word of the bitmap.
const WORD: u32 = u64::BITS;

/// The slots of one device.
pub(crate) struct SlotMap {
    slots: u32,
    free: u32,
    /// A bit for each slot, set if the slot is free.
    map: Vec<u64>,
    records: Vec<Vec<Record>>,
    /// The memcg charged for each slot; empty until the first memcg is opened.
    memcgs: Vec<Vec<u16>>,
    /// The slot at which the next search for a free slot starts. Because of it, pages that are swapped out together get
    /// adjacent slots.
    next: u32,
    /// Whether the device is closed: no more pages are swapped out to it.
    closed: bool,
}

impl SlotMap {
    pub(super) fn new(slots: u32) -> Result<Self, OutOfMemory> {
        let words = slots.div_ceil(WORD) as usize;
        // Allocate everything before any of it is written, so that a number of slots that the heap cannot hold is
        // refused soon.
        let mut map = Vec::new();
        map.try_make_room(words)?;
        let mut records: Vec<Vec<Record>> = Vec::new();
        records.try_make_room((slots as usize).div_ceil(CHUNK))?;
        let mut left = slots as usize;
        while left > 0 {
            let mut chunk = Vec::new();
            chunk.try_make_room(left.min(CHUNK))?;
            left -= left.min(CHUNK);
            records.try_push(chunk)?;
        }
        for word in 0..slots.div_ceil(WORD) {
            let here = (slots - word * WORD).min(WORD);
            map.try_push(u64::MAX >> (WORD - here))?;
        }
        let mut left = slots as usize;
        for chunk in &mut records {
            for _ in 0..left.min(CHUNK) {
                chunk.try_push(Record::FREE)?;
            }
            left -= left.min(CHUNK);
        }
        Ok(Self {
            slots,
            free: slots,
            map,
            records,
            memcgs: Vec::new(),
            next: 0,
            closed: false,
        })
    }

    /// Allocates the memcg record of each slot, unless the records exist already.
    pub(crate) fn note_memcgs(&mut self) -> Result<(), OutOfMemory> {
        if !self.memcgs.is_empty() {
            return Ok(());
        }
        let mut memcgs = Vec::new();
        memcgs.try_make_room(self.records.len())?;
        for chunk in &self.records {
            let mut part = Vec::new();
            part.try_make_room(chunk.len())?;
            for _ in 0..chunk.len() {
                part.try_push(Memcg::NOBODY.raw())?;
            }
            memcgs.try_push(part)?;
        }
        self.memcgs = memcgs;
        Ok(())
    }

    /// Returns the memcg that is charged for a slot.
    pub(super) fn memcg(&self, slot: u32) -> Memcg {
        let slot = slot as usize;
        let part = self.memcgs.get(slot / CHUNK);
        part.map_or(Memcg::NOBODY, |part| Memcg::from_raw(part[slot % CHUNK]))
    }

    /// Charges a slot to `memcg`. Returns false if the charge cannot be recorded, because the memory for it has not
    /// been allocated.
    pub(super) fn set_memcg(&mut self, slot: u32, memcg: Memcg) -> bool {
        let slot = slot as usize;
        match self.memcgs.get_mut(slot / CHUNK) {
            Some(part) => {
                part[slot % CHUNK] = memcg.raw();
                true
            }
            None => memcg == Memcg::NOBODY,
        }
    }

    /// Returns whether the device is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Closes or reopens the device. Returns false if it is already closed or open as requested.
    pub(super) fn set_closed(&mut self, closed: bool) -> bool {
        core::mem::replace(&mut self.closed, closed) != closed
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Allocates the next free slot.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let words = self.map.len();
        let mut index = (self.next / WORD) as usize;
        // The word that contains slot `next` is examined twice: at the start for slots from `next` on, and at the end
        // for slots before `next`.
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

    /// Frees a slot whose record has no use and no frame.
    pub(super) fn give_back(&mut self, slot: u32) {
        debug_assert_eq!(*self.record(slot), Record::FREE, "a slot in use is freed");
        let word = &mut self.map[(slot / WORD) as usize];
        debug_assert!(*word & 1 << (slot % WORD) == 0, "a slot is freed twice");
        *word |= 1 << (slot % WORD);
        self.free += 1;
    }

    /// Returns the record of a slot.
    ///
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
    use crate::swap::place::Place;

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
