//! Fault-around, and the bits of entries that map pages of an object.

use memwright_table::{Bits, Cursor, Entry, Frame, Machine, Page, PageRange};

use crate::fault::attempt::Fault;
use crate::mm::object::{CachedRun, Object};
use crate::mm::space::Area;
use crate::types::error::ObjectError;
use crate::types::policy::WriteUpgrade;
use crate::vma::writable::{View, access_bits, upgrade};

/// The maximum number of pages that fault-around maps.
pub(super) const AROUND: usize = CachedRun::MOST;

/// The number of pages that a lowest-level page table maps.
pub(super) const TABLE_PAGES: u64 = 512;

impl<M: Machine> Fault<'_, M> {
    /// Maps the pages of `window` that are not mapped and that the object has in memory. Their entries get the bits
    /// `state` in addition to the area's rights. Returns the number of pages mapped. Maps nothing if the generation of
    /// the object's mappings is no longer `generation`.
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
        let mut around = Around::new(self.area, window);
        around.find(self, object);
        let mut cursor = self.core.table.cursor(around.range);
        let mut mapped = 0;
        if object.mappings().generation() == generation {
            mapped = around.fill(self, &mut cursor, state);
        }
        drop(cursor);
        around.release(self);
        self.core.note_filled_objects(self.cpu, mapped);
        mapped
    }

    /// Returns the bits of an entry that maps a frame of the object: the area's rights, and `state`. `view` is the view
    /// of the area. The entry is writable at once if [`writable`](crate::writable) allows it.
    #[inline(always)]
    pub(super) fn object_bits(self, view: View, state: Bits) -> Bits {
        let bits = access_bits(view.rights) | state;
        let policy = if self.access.write {
            WriteUpgrade::On
        } else {
            self.core.memory.policy().write_upgrade()
        };
        if upgrade(view, bits, policy).is_writable() {
            bits | Bits::WRITE
        } else {
            bits
        }
    }

    /// Returns the window `range`, with the pages of it that are not mapped. The range has at most [`AROUND`] pages,
    /// all of one last-level page table.
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

/// The frames that fault-around has found, with a reference to each frame.
pub(super) struct Around {
    range: PageRange,
    /// The pages of `range`. Those that are not mapped are marked as wanted.
    run: CachedRun,
}

impl Around {
    /// Returns an `Around` of the pages of `window`, in `area`, that has found no frames yet.
    #[inline(always)]
    pub(super) fn new<M: Machine>(area: &Area<M>, window: Window) -> Self {
        Self {
            range: window.range,
            run: CachedRun::new(area.offset_of(window.range.start), window.empty),
        }
    }

    /// Looks up the pages that are not mapped and that the object has in memory.
    fn find<M: Machine>(&mut self, fault: Fault<'_, M>, object: &dyn Object<M>) {
        let run = &mut self.run;
        let (first, wanted) = (run.first, run.wanted);
        run.found = object.cached_run(&fault.core.memory, first, wanted, run.frames());
    }

    /// Returns the frame that the object provides for a load of page `index`, and finds the pages that
    /// [`find`](Self::find) finds.
    ///
    /// # Errors
    /// Those of [`Object::frame`].
    #[inline(always)]
    pub(super) fn find_with_frame<M: Machine>(
        &mut self,
        fault: Fault<'_, M>,
        object: &dyn Object<M>,
        index: u64,
    ) -> Result<Frame, ObjectError> {
        object.frame_and_run(&fault.core.memory, index, &mut self.run)
    }

    /// Maps the frames whose entries are empty, with the bits `state` in addition to the area's rights. Returns the
    /// number of frames mapped. The entries have no accessed bit, because the program has not accessed the pages yet.
    /// Linux also omits the bit on hardware that sets it cheaply.
    #[inline]
    pub(crate) fn fill<M: Machine>(
        &mut self,
        fault: Fault<'_, M>,
        cursor: &mut Cursor<'_, M>,
        state: Bits,
    ) -> u64 {
        if self.run.found == 0 {
            return 0;
        }
        self.fill_found(fault, cursor, state)
    }

    #[inline(never)]
    fn fill_found<M: Machine>(
        &mut self,
        fault: Fault<'_, M>,
        cursor: &mut Cursor<'_, M>,
        state: Bits,
    ) -> u64 {
        let bits = fault.object_bits(fault.area.view(), state);
        let (mut left, mut filled) = (self.run.found, 0);
        while left != 0 {
            let place = left.trailing_zeros();
            left &= left - 1;
            cursor.seek(self.range.start.add(place.into()));
            if cursor.peek() != Entry::Empty {
                continue;
            }
            let frame = self.run.frames()[place as usize];
            let frames = fault.core.memory.frames();
            let shown = frames.for_entry(frames.adopt(frame));
            self.run.found &= !(1 << place);
            if cursor.fill(Entry::page(frame, bits)).is_ok() {
                let _ = shown.into_raw();
                filled += 1;
            }
        }
        filled
    }

    /// Drops the references of the frames that were not mapped.
    #[inline]
    pub(super) fn release<M: Machine>(&mut self, fault: Fault<'_, M>) {
        while self.run.found != 0 {
            let place = self.run.found.trailing_zeros();
            let frame = self.run.frames()[place as usize];
            self.run.found &= self.run.found - 1;
            drop(fault.core.memory.frames().adopt(frame));
        }
    }
}
