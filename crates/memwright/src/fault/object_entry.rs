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
    /// Maps the pages of `window` that the object has in memory and that are not mapped, with the bits `state` in
    /// addition to the area's rights. Returns the number of pages mapped. Maps nothing if the object's generation is no
    /// longer `generation`.
    pub(super) fn map_present(
        self,
        object: &dyn Object<M>,
        generation: u64,
        window: Window,
        state: Bits,
    ) -> u64 {
        if window.empty == 0 {
            return 0;
        }
        let mut around = Around::find(self, object, window);
        let mut cursor = self.core.table.cursor(around.range);
        let mut mapped = 0;
        if object.mappings().generation() == generation {
            mapped = around.fill(self, &mut cursor, state);
        }
        drop(cursor);
        Around::release(Some(&mut around), self);
        self.core.note_filled(self.cpu, mapped);
        self.core.note_objects(self.cpu, mapped);
        mapped
    }

    /// Returns the bits of an entry that maps a frame of the object: the area's rights, and `state`. The entry is
    /// writable at once if [the rule](crate::writable) allows it.
    #[inline(always)]
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

    /// Looks up which pages of `range` are mapped. The range has at most [`AROUND`] pages, all of one last-level page
    /// table.
    pub(super) fn window_of(self, range: PageRange) -> Window {
        let empty = self.core.table.look(range).empty_pages();
        Window::around(self.page, range, empty)
    }
}

/// The pages that fault-around can map.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// At most [`AROUND`] pages, all of one last-level page table.
    pub(super) range: PageRange,
    /// Bitmap of the pages that are not mapped, except the page that faulted. Bit 0 is the first page of `range`.
    pub(super) empty: u64,
}

impl Window {
    /// Returns the window `range` of a fault at `page`. `empty` is a bitmap of the pages that are not mapped.
    pub(super) fn around(page: Page, range: PageRange, mut empty: u64) -> Self {
        if range.contains(page) {
            empty &= !(1 << (page.number() - range.start.number()));
        }
        Self { range, empty }
    }
}

/// The frames that fault-around has found, with one reference to each.
pub(super) struct Around {
    range: PageRange,
    /// Bitmap of the pages whose frames were found; bit 0 is the first page of `range`.
    found: u64,
    /// The frames. Those of pages that were not found are without meaning.
    frames: [Frame; AROUND],
}

impl Around {
    /// Finds the pages of `window` that the object has in memory and that are not mapped.
    #[inline]
    pub(super) fn find<M: Machine>(
        fault: Fault<'_, M>,
        object: &dyn Object<M>,
        window: Window,
    ) -> Self {
        let mut around = Self {
            range: window.range,
            found: 0,
            frames: [Frame::new(0); AROUND],
        };
        let first = fault.area.offset_of(window.range.start);
        let memory = &fault.core.memory;
        around.found = object.cached_run(memory, first, window.empty, &mut around.frames);
        around
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
    pub(super) fn release<M: Machine>(around: Option<&mut Self>, fault: Fault<'_, M>) {
        let Some(around) = around else {
            return;
        };
        while around.found != 0 {
            let frame = around.frames[around.found.trailing_zeros() as usize];
            around.found &= around.found - 1;
            drop(fault.core.memory.frames().adopt(frame));
        }
    }
}
