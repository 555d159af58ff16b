//! Fault-around, and the bits of entries that map pages of an object.

use memwright_table::{Bits, Cursor, Entry, Frame, Machine, Page, PageRange};

use crate::fault::attempt::Fault;
use crate::mm::object::Object;
use crate::vma::writable::{access_bits, upgrade, writable};

/// The maximum number of pages that fault-around maps.
pub(super) const AROUND: usize = 16;

/// The number of pages that a lowest-level page table maps.
pub(super) const TABLE_PAGES: u64 = 512;

impl<M: Machine> Fault<'_, M> {
    /// Maps the pages of `around` whose entries are empty, with the bits `state` in addition to the area's rights, and
    /// releases the frames of the others. Returns the number of pages mapped. Maps nothing if the object's generation
    /// is no longer `generation`.
    pub(super) fn map_present(
        self,
        object: &dyn Object<M>,
        generation: u64,
        mut around: Around,
        state: Bits,
    ) -> u64 {
        let mut cursor = self.core.table.cursor(around.range);
        let mut mapped = 0;
        if object.mappings().generation() == generation {
            mapped = around.fill(self, &mut cursor, state);
        }
        drop(cursor);
        around.release(self);
        self.core.note_filled(self.cpu, mapped);
        self.core.note_objects(self.cpu, mapped);
        mapped
    }

    /// Returns the bits of an entry that maps a frame of the object: the area's rights, and `state`. The entry is
    /// writable at once if [the rule](crate::writable) allows it.
    pub(super) fn object_bits(self, state: Bits) -> Bits {
        let bits = access_bits(self.area.rights()) | state;
        let view = self.area.view();
        let verdict = if self.access.write {
            writable(view, bits)
        } else {
            upgrade(view, bits, self.core.memory.policy().write_upgrade())
        };
        if verdict.is_writable() {
            bits | Bits::WRITE
        } else {
            bits
        }
    }

    /// Finds the pages of `range`, at most [`AROUND`], that the object has in memory and that are not mapped yet. Skips
    /// the page that faulted.
    pub(super) fn look_at(self, object: &dyn Object<M>, range: PageRange) -> Around {
        let mut around = Around {
            range,
            found: 0,
            frames: [Frame::new(0); AROUND],
        };
        let mut wanted = self.core.table.look(range).empty_pages();
        if range.contains(self.page) {
            wanted &= !(1 << (self.page.number() - range.start.number()));
        }
        if wanted != 0 {
            let first = self.area.offset_of(range.start);
            let memory = &self.core.memory;
            around.found = object.cached_run(memory, first, wanted, &mut around.frames);
        }
        around
    }
}

/// The frames that fault-around has found, with one reference to each.
pub(super) struct Around {
    pub(crate) range: PageRange,
    /// Bitmap of the pages whose frames were found; bit 0 is the first page of `range`.
    found: u64,
    /// The frames. Those of pages that were not found are without meaning.
    frames: [Frame; AROUND],
}

impl Around {
    pub(crate) fn none(page: Page) -> Self {
        Self {
            range: PageRange::single(page),
            found: 0,
            frames: [Frame::new(0); AROUND],
        }
    }

    /// Maps the frames whose entries are empty, with the bits `state` in addition to the area's rights. Returns the
    /// number of frames mapped. The entries have no accessed bit, because the program has not accessed the pages yet.
    /// Linux omits the bit where the hardware sets it cheaply.
    pub(crate) fn fill<M: Machine>(
        &mut self,
        fault: Fault<'_, M>,
        cursor: &mut Cursor<'_, M>,
        state: Bits,
    ) -> u64 {
        if self.found == 0 {
            return 0;
        }
        let bits = fault.object_bits(state);
        let (mut left, mut filled) = (self.found, 0);
        while left != 0 {
            let place = left.trailing_zeros();
            left &= left - 1;
            cursor.seek(self.range.start.add(place.into()));
            if cursor.peek() != Entry::Empty {
                continue;
            }
            let frame = self.frames[place as usize];
            let frames = fault.core.memory.frames();
            let shown = frames.for_entry(frames.adopt(frame));
            self.found &= !(1 << place);
            if cursor.fill(Entry::page(frame, bits)).is_ok() {
                let _ = shown.into_raw();
                filled += 1;
            }
        }
        filled
    }

    /// Drops the references of the frames that were not mapped.
    pub(crate) fn release<M: Machine>(&mut self, fault: Fault<'_, M>) {
        while self.found != 0 {
            let frame = self.frames[self.found.trailing_zeros() as usize];
            self.found &= self.found - 1;
            drop(fault.core.memory.frames().adopt(frame));
        }
    }
}
