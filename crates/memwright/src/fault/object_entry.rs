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
            found: false,
            frames: [None; AROUND],
        };
        let mut wanted = self.core.table.look(range).empty_pages();
        if range.contains(self.page) {
            wanted &= !(1 << (self.page.number() - range.start.number()));
        }
        let first = self.area.offset_of(range.start);
        while wanted != 0 {
            let start = wanted.trailing_zeros();
            let count = (wanted >> start).trailing_ones();
            wanted &= !(((1 << count) - 1) << start);
            let run = &mut around.frames[start as usize..(start + count) as usize];
            object.cached_run(&self.core.memory, first + u64::from(start), run);
            around.found |= run.iter().any(Option::is_some);
        }
        around
    }
}

/// The frames that fault-around has found, with one reference to each.
pub(super) struct Around {
    pub(crate) range: PageRange,
    /// Whether `frames` contains at least one frame.
    found: bool,
    frames: [Option<Frame>; AROUND],
}

impl Around {
    pub(crate) fn none(page: Page) -> Self {
        Self {
            range: PageRange::single(page),
            found: false,
            frames: [None; AROUND],
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
        if !self.found {
            return 0;
        }
        let bits = fault.object_bits(state);
        let mut filled = 0;
        for (page, slot) in self.range.iter().zip(&mut self.frames) {
            let Some(frame) = *slot else {
                continue;
            };
            cursor.seek(page);
            if cursor.peek() != Entry::Empty {
                continue;
            }
            let frames = fault.core.memory.frames();
            let shown = frames.for_entry(frames.adopt(frame));
            *slot = None;
            if cursor.fill(Entry::page(frame, bits)).is_ok() {
                let _ = shown.into_raw();
                filled += 1;
            }
        }
        filled
    }

    /// Drops the references of the frames that were not mapped.
    pub(crate) fn release<M: Machine>(&mut self, fault: Fault<'_, M>) {
        if !self.found {
            return;
        }
        for frame in self.frames.iter_mut().filter_map(Option::take) {
            drop(fault.core.memory.frames().adopt(frame));
        }
    }
}
