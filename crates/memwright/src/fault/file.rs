//! A fault in an area that maps an object (Linux 7.2 `mm/memory.c`, `do_read_fault`, `do_cow_fault` and
//! `do_shared_fault`).

use memwright_table::{Bits, Cursor, Entry, FrameKind, FrameRef, Machine, Page, PageRange};

use crate::fault::attempt::Fault;
use crate::fault::object_entry::{AROUND, Around, TABLE_PAGES, Window};
use crate::mm::mappings::Mappings;
use crate::mm::object::Object;
use crate::types::access::FaultKind;
use crate::types::error::{FaultError, ObjectError};
use crate::types::stats::Row;
use crate::types::uffd::WatchedFault;
use crate::vma::area::AreaFlags;

impl<M: Machine> Fault<'_, M> {
    /// Resolves the fault in an area that maps an object.
    pub(super) fn resolve_object(self) -> Result<FaultKind, FaultError> {
        let Some(object) = self.area.object() else {
            return Err(FaultError::NoArea);
        };
        if self.area.flags().contains(AreaFlags::HUGETLB) {
            return self.resolve_hugetlb();
        }
        // Whether a swap-in of this fault has read a swap device, so that the fault counts as `FaultKind::SwapIn`.
        let mut read = false;
        loop {
            if let Some(kind) = self.attempt_object(&**object, &mut read)? {
                return Ok(if read { FaultKind::SwapIn } else { kind });
            }
        }
    }

    /// Attempts once to resolve the fault in an area that maps `object`. Returns `None` if the caller must retry. Sets
    /// `read` if a swap-in read a swap device. Not inlined, because the compiler would otherwise compute, before the
    /// loop of the caller, all values that the attempts share. For a fault on a present page, that costs more than a
    /// call.
    #[inline(never)]
    fn attempt_object(
        &self,
        object: &dyn Object<M>,
        read: &mut bool,
    ) -> Result<Option<FaultKind>, FaultError> {
        let around = self.range_around();
        let watched = AreaFlags::UFFD_MISSING | AreaFlags::UFFD_MINOR;
        let mut cursor = self.core.table.cursor_at(around, self.page);
        match cursor.peek() {
            Entry::Present(page) => {
                cursor.narrow();
                return self.resolve_present(cursor, page).map(Some);
            }
            Entry::Swapped(page) => {
                cursor.narrow();
                return self.swap_in(cursor, page).map(Some);
            }
            entry @ (Entry::Empty | Entry::Marker(_) | Entry::Migrating(_)) => {
                self.check_absent(entry)?;
                if !self.area.flags().intersects(watched) {
                    self.check_fill(entry)?;
                }
            }
        }
        let empty = match around.len() {
            1 => 0,
            _ => cursor.empty_pages(),
        };
        let window = Window::around(self.page, around, empty);
        // The object's locks rank before the page-table lock: release the page-table lock, get the page, and check the
        // entry again.
        cursor.suspend();
        let mappings = object.mappings();
        let generation = mappings.generation();
        if self.area.flags().intersects(watched) {
            self.check_watched(object, generation)?;
        }
        self.map_object(&mut cursor, object, (mappings, generation), window, read)
    }

    /// Returns `FaultError::Watched` if a userfaultfd must be notified of the fault: of a missing fault if the page is
    /// not in memory, of a minor fault if it is (Linux 7.2 `mm/shmem.c`, `shmem_get_folio_gfp`). Returns
    /// `FaultError::BeyondObject` if the page is beyond the end of the object. A write-protection fault is checked
    /// last, so a missing or minor fault is reported in preference to it.
    #[cold]
    fn check_watched(self, object: &dyn Object<M>, generation: u64) -> Result<(), FaultError> {
        let index = self.area.offset_of(self.page);
        if self.access.write && !self.area.is_shared() {
            // A store to private memory creates the anon_vma even if a userfaultfd is notified of the fault
            // (`do_cow_fault`).
            self.note_private();
        }
        if !object.contains(index) {
            if !self.access.write {
                self.map_neighbours(object, generation);
            }
            return Err(FaultError::BeyondObject);
        }
        let flags = self.area.flags();
        if object.holds(&self.core.memory, index) {
            if flags.contains(AreaFlags::UFFD_MINOR) {
                return Err(FaultError::Watched(WatchedFault::Minor));
            }
        } else if flags.contains(AreaFlags::UFFD_MISSING) {
            if !self.access.write {
                self.map_neighbours(object, generation);
            }
            return Err(FaultError::Watched(WatchedFault::Missing));
        }
        let (_cursor, entry) = self.core.table.entry_of(self.page);
        self.check_fill(entry).map(drop)
    }

    /// Checks the entry in an area with guard markers. A guard marker denies the access before the object is called,
    /// even if the page is beyond the end of the object (Linux 7.2 `mm/memory.c`, `handle_pte_marker`).
    #[cold]
    fn check_guard(self) -> Result<(), FaultError> {
        let (_, entry) = self.core.table.entry_of(self.page);
        match entry {
            marker @ Entry::Marker(_) => self.check_absent(marker).map(drop),
            Entry::Empty | Entry::Present(_) | Entry::Swapped(_) | Entry::Migrating(_) => Ok(()),
        }
    }

    /// Gets the page from the object and maps it in the entry of the suspended cursor. A store to private memory maps a
    /// copy instead. A load also maps the pages of `window` that the object has in memory. Returns `None` if the caller
    /// must retry: the entry changed meanwhile, the generation of the object's mappings is no longer `generation`, or
    /// the page was swapped in. Sets `read` if the swap-in read a swap device.
    fn map_object(
        self,
        cursor: &mut Cursor<'_, M>,
        object: &dyn Object<M>,
        (mappings, generation): (&Mappings<M>, u64),
        window: Window,
        read: &mut bool,
    ) -> Result<Option<FaultKind>, FaultError> {
        let core = self.core;
        let frames = core.memory.frames();
        let index = self.area.offset_of(self.page);
        let to_object = self.access.write && self.area.is_shared();
        if self.area.flags().contains(AreaFlags::GUARDED) {
            self.check_guard()?;
        }
        if self.access.write && !to_object {
            // A store to private memory creates the anon_vma even if the fault fails later (Linux 7.2 `do_cow_fault`).
            self.note_private();
        }
        if self.fits_huge() {
            if let Some(kind) = self.map_folio(object, generation)? {
                return Ok(Some(kind));
            }
        }
        let comes_together = self.may_fill_object_folio();
        let filled = comes_together && self.fill_object_folio(object);
        let mut around = Around::new(self.area, window);
        let supplied = if window.empty == 0 {
            object.frame(&core.memory, index, to_object)
        } else {
            around.find_with_frame(self, object, index)
        };
        let frame = match supplied {
            Ok(frame) => frames.adopt_inlined(frame),
            Err(ObjectError::InSwap) => {
                *read |= self.bring_object_in(object, index)?;
                return Ok(None);
            }
            Err(error) => {
                if !self.access.write {
                    self.map_neighbours(object, generation);
                }
                return Err(error.into());
            }
        };
        if self.access.write && !self.area.is_shared() {
            return self.map_copy(object, generation, &frame);
        }
        let view = self.area.view();
        if to_object && view.notify {
            object.first_write(index)?;
        }
        cursor.resume();
        let entry = cursor.peek();
        let inherited = match self.check_fill(entry) {
            Ok(inherited) if mappings.generation() == generation => inherited,
            Ok(_) | Err(_) => {
                cursor.suspend();
                around.release(self);
                return Ok(None);
            }
        };
        let written = if to_object {
            Bits::DIRTY | Bits::SOFT_DIRTY
        } else {
            Bits::empty()
        };
        let bits = self.object_bits(view, Bits::ACCESSED | written | inherited);
        let frame = frames.for_entry(frame);
        let mapped = cursor.fill(Entry::page(frame.frame(), bits));
        if let Err(error) = mapped {
            cursor.suspend();
            around.release(self);
            return Err(error.into());
        }
        let frame = frame.into_raw();
        let mapped = 1 + around.fill(self, cursor, Bits::empty());
        cursor.suspend();
        around.release(self);
        core.note_filled_objects(self.cpu, mapped);
        if mapped > 1 {
            core.memory.count_on(self.cpu, Row::FaultAround, mapped - 1);
        }
        // Map the rest of the folio if this fault created it, or if the window of this fault is a single page
        // (`do_fault_around`).
        if comes_together && (filled || window.range.len() == 1) {
            self.map_object_folio(object, generation, frame, written);
        }
        Ok(Some(if filled {
            FaultKind::Folio
        } else {
            FaultKind::File
        }))
    }

    /// Maps the pages around the fault although the object cannot provide the page that faulted: Linux does
    /// fault-around before it looks up the faulting page (`do_read_fault`). Maps nothing if the generation of the
    /// object's mappings is no longer `generation`.
    #[cold]
    fn map_neighbours(self, object: &dyn Object<M>, generation: u64) {
        let window = self.window_of(self.range_around());
        let mapped = self.map_present(object, generation, window, Bits::empty());
        self.core
            .memory
            .count_on(self.cpu, Row::FaultAround, mapped);
    }

    /// Handles a store to a private page that is not mapped: maps a copy of the object's page.
    fn map_copy(
        self,
        object: &dyn Object<M>,
        generation: u64,
        source: &FrameRef<'_, M>,
    ) -> Result<Option<FaultKind>, FaultError> {
        let core = self.core;
        let frames = core.memory.frames();
        let copy = frames.allocate(0, FrameKind::Anonymous)?;
        frames.copy(source.frame(), copy.frame());
        let (mut cursor, entry) = core.table.entry_of(self.page);
        let Ok(inherited) = self.check_fill(entry) else {
            return Ok(None);
        };
        if object.mappings().generation() != generation {
            return Ok(None);
        }
        self.fill_own(&mut cursor, copy.frame(), inherited)?;
        let _ = copy.into_raw();
        core.memory.count_on(self.cpu, Row::FramesCopied, 1);
        Ok(Some(FaultKind::Copy))
    }

    /// Returns the range of fault-around. It is a single page if the fault is a store or fault-around is off.
    fn range_around(self) -> PageRange {
        let single = PageRange::single(self.page);
        if self.access.write {
            return single;
        }
        let pages = self.core.memory.policy().fault_around().min(AROUND as u64);
        // A userfaultfd must be notified of each store or minor fault, so pages around the fault are not mapped
        // (`uffd_disable_fault_around`).
        let watched = AreaFlags::UFFD_WP
            .union(AreaFlags::UFFD_MINOR)
            .union(AreaFlags::UFFD_RWP);
        if pages <= 1 || self.area.flags().intersects(watched) {
            return single;
        }
        window(self.page, self.area.range(), pages)
    }
}

/// Returns the range of fault-around at `page`: `pages` pages, which is a power of two. The range starts at a multiple
/// of `pages`, or at the start of the area if that is later. It ends at the end of the area or of the lowest-level page
/// table at the latest (Linux 7.2 `mm/memory.c`, `do_fault_around`).
fn window(page: Page, area: PageRange, pages: u64) -> PageRange {
    let aligned = page.number() & !(pages - 1);
    let start = aligned.max(area.start.number());
    let table = (page.number() | (TABLE_PAGES - 1)) + 1;
    let end = (start + pages).min(table).min(area.end.number());
    PageRange::new(Page::new(start), Page::new(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_begins_where_it_is_aligned_or_where_the_area_does() {
        // The columns: the page, the area, and the expected range of fault-around. The range has 16 pages from the
        // later of the two starts, unless the area or the page table ends earlier.
        for (page, area, around) in [
            (40, (0, 100), (32, 48)),
            (40, (35, 100), (35, 51)),
            (50, (35, 100), (48, 64)),
            (40, (35, 45), (35, 45)),
            (32, (0, 100), (32, 48)),
            (47, (47, 100), (47, 63)),
            (510, (505, 600), (505, 512)),
            (513, (505, 600), (512, 528)),
        ] {
            let range = |(start, end)| PageRange::new(Page::new(start), Page::new(end));
            let found = window(Page::new(page), range(area), 16);
            assert_eq!(found, range(around), "page {page} of {area:?}");
        }
    }
}
