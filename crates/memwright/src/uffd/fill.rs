//! Filling one page of a registered area (Linux 7.2 `mm/userfaultfd.c`, `mfill_atomic`).

use alloc::sync::Arc;
use memwright_table::{
    Bits, Cursor, Entry, FrameKind, FrameRef, Machine, Marker, Marks, PAGE_SIZE, Page, PageRange,
};

use crate::fault::attempt::Fault;
use crate::mm::object::{Object, Put};
use crate::mm::theme::Uffd;
use crate::types::access::Access;
use crate::types::error::{FillError, ObjectError};
use crate::types::stats::Row;
use crate::types::uffd::Fill;
use crate::uffd::{is_memory, unit_of};
use crate::vma::area::AreaFlags;
use crate::vma::writable::{access_bits, upgrade, writable};
use crate::vma::written::{arm_written, is_by_dirty};

impl<M: Machine> Uffd<'_, M> {
    /// Fills `page`, which must be in a registered area and not mapped. No thread can see a partly filled page. The
    /// area may be registered with another userfaultfd than the caller's, because Linux does not check this either
    /// (`validate_dst_vma`). If `protect` is set, the page is mapped write-protected.
    ///
    /// # Errors
    /// See [`FillError`]. On error nothing has changed.
    pub fn fill(&self, page: Page, fill: Fill<'_>, protect: bool) -> Result<(), FillError> {
        let memory = &*self.space.core.memory;
        while let Some(away) = self.fill_from_memory(page, fill, protect)? {
            let found = away.object.find(memory, away.index).map_err(refusal)?;
            drop(found.map(|frame| memory.frames().adopt(frame)));
        }
        Ok(())
    }

    /// Fills `page` like [`fill`](Self::fill), but does not wait for a swap device. If the page of the object is in
    /// swap, returns the page, and the caller swaps it in with no lock held.
    fn fill_from_memory(
        &self,
        page: Page,
        fill: Fill<'_>,
        protect: bool,
    ) -> Result<Option<InSwap<M>>, FillError> {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        let area = areas.map.find(page).ok_or(FillError::NotWatched)?;
        if area.backing().has_watcher(None) {
            return Err(FillError::NotWatched);
        }
        if protect && !area.flags().contains(AreaFlags::UFFD_WP) {
            return Err(FillError::NotProtectable);
        }
        let fault = Fault {
            core,
            cpu: core.cpu(),
            areas: &areas,
            area,
            page,
            access: Access::WRITE,
        };
        let place = Place { fault, protect };
        if area.flags().contains(AreaFlags::HUGETLB) {
            place.fill_hugetlb(fill)?;
            return Ok(None);
        }
        place.check_object(&fill)?;
        match (fill, area.object()) {
            (Fill::Poison, _) => place.poison()?,
            (Fill::Object, Some(object)) => {
                if !place.show(&**object)? {
                    return Ok(Some(InSwap {
                        object: object.clone(),
                        index: area.offset_of(page),
                    }));
                }
            }
            (Fill::Object, None) => return Err(FillError::NotApplicable),
            (Fill::Bytes(bytes), Some(object)) if area.is_shared() => {
                place.put(&**object, Some(bytes))?;
            }
            (Fill::Zeroes, Some(object)) if area.is_shared() => place.put(&**object, None)?,
            (Fill::Bytes(bytes), Some(_) | None) => place.own_page(bytes)?,
            (Fill::Zeroes, Some(_) | None) => place.zero_page()?,
        }
        Ok(None)
    }
}

/// A page of an object. The page is in swap.
struct InSwap<M: Machine> {
    object: Arc<dyn Object<M>>,
    index: u64,
}

/// The marks of the markers that a filled page may replace. A marker with any other mark stays (Linux 7.2
/// `pte_is_uffd_marker`).
pub(super) const PAGE_OVER: Marks = Marks::UFFD_WP.union(Marks::POISON);

/// The page to fill, and the way in which it is mapped.
pub(super) struct Place<'a, M: Machine> {
    /// The fault that an access to the page would take. The fill maps the page as this fault would. It is not necessary
    /// that a thread has taken the fault.
    pub(super) fault: Fault<'a, M>,
    pub(super) protect: bool,
}

impl<M: Machine> Place<'_, M> {
    /// Returns an error if the area does not map memory, or if the page is beyond the end of its object. Both checks
    /// also apply to private mappings (Linux 7.3 `mm/userfaultfd.c`, `mfill_atomic` and `mfill_file_over_size`).
    fn check_object(&self, fill: &Fill<'_>) -> Result<(), FillError> {
        let area = self.fault.area;
        if !is_memory(area) {
            return Err(FillError::NotApplicable);
        }
        let index = area.offset_of(self.fault.page);
        match area.object() {
            Some(object) if !object.contains(index) => Err(match fill {
                // Linux allocates no page beyond the end of shared memory (`shmem_mfill_folio_alloc`).
                Fill::Bytes(_) | Fill::Zeroes if area.is_shared() => FillError::BeyondEnd,
                Fill::Bytes(_) | Fill::Zeroes | Fill::Object | Fill::Poison => FillError::NotThere,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the bits of an entry for a page with the bits `state`: write-protected if the caller requests it, and
    /// writable if [`writable`](crate::writable) permits it. If this call did not store the contents (`stored` is
    /// false), write permission is granted only if the write-upgrade policy allows it too.
    pub(super) fn bits(&self, state: Bits, stored: bool) -> Bits {
        let view = self.fault.area.view();
        let mut bits = access_bits(self.fault.area.rights()) | state;
        if self.protect {
            let flags = self.fault.area.flags();
            let edit = arm_written(is_by_dirty(flags, unit_of(self.fault.area)), bits);
            bits = (bits - edit.clear) | edit.set;
        }
        let verdict = if stored {
            writable(view, bits)
        } else {
            upgrade(view, bits, self.fault.core.memory.policy().write_upgrade())
        };
        bits.set(Bits::WRITE, verdict.is_writable());
        bits
    }

    /// Returns a cursor at the entry of the page, or an error if the entry is not empty. A marker counts as empty if
    /// all of its marks are in `gives_way`.
    pub(super) fn vacancy(&self, gives_way: Marks) -> Result<Cursor<'_, M>, FillError> {
        let table = &self.fault.core.table;
        let start = self.fault.page;
        let end = start.add(unit_of(self.fault.area).pages());
        let cursor = table.cursor(PageRange::new(start, end));
        match cursor.peek() {
            Entry::Empty => Ok(cursor),
            Entry::Marker(Marker { marks }) if gives_way.contains(marks) => Ok(cursor),
            Entry::Marker(_) | Entry::Present(_) | Entry::Swapped(_) | Entry::Migrating(_) => {
                Err(FillError::Exists)
            }
        }
    }

    /// Sets the entry of the page, or returns an error if the entry is not empty.
    fn enter(&self, entry: Entry) -> Result<(), FillError> {
        self.vacancy(PAGE_OVER)?.fill(entry)?;
        Ok(())
    }

    /// Allocates a frame with the contents `bytes`, or a zeroed frame if `bytes` is `None`.
    fn frame(
        &self,
        kind: FrameKind,
        bytes: Option<&[u8; PAGE_SIZE]>,
    ) -> Result<FrameRef<'_, M>, FillError> {
        let frames = self.fault.core.memory.frames();
        let Some(bytes) = bytes else {
            return Ok(frames.allocate_zeroed(0, kind)?);
        };
        let frame = frames.allocate(0, kind)?;
        frames.write(frame.frame(), 0, bytes);
        Ok(frame)
    }

    /// Maps a private page with the contents `bytes`.
    fn own_page(&self, bytes: &[u8; PAGE_SIZE]) -> Result<(), FillError> {
        let frame = self.frame(FrameKind::Anonymous, Some(bytes))?;
        self.fault.note_private();
        let state = Bits::ACCESSED | Bits::DIRTY | Bits::SOFT_DIRTY | Bits::EXCLUSIVE;
        self.enter(Entry::page(frame.frame(), self.bits(state, true)))?;
        let _ = frame.into_raw();
        self.fault.core.note_filled(self.fault.core.cpu(), 1);
        Ok(())
    }

    /// Maps the shared zero page. Gives the area an anon_vma, because fork copies the entries of an area only if it has
    /// one.
    fn zero_page(&self) -> Result<(), FillError> {
        let state = Bits::ACCESSED | Bits::BORROWED;
        let bits = self.bits(state, false);
        self.fault.note_private();
        let entry = Entry::page(self.fault.core.memory.zero_frame(), bits);
        self.vacancy(Marks::empty())?.fill(entry)?;
        self.fault.core.note_borrowed(self.fault.core.cpu(), 1);
        Ok(())
    }

    /// Adds a page with the contents `bytes`, or a zeroed page, to the object and maps it. No other thread finds the
    /// page in the object before it is mapped here (Linux 7.3 keeps the folio locked, `mm/userfaultfd.c`
    /// `mfill_atomic_pte_copy`). Otherwise a thread that waits for the page might map it first, without write
    /// protection, and this fill would fail although it had filled the page.
    fn put(
        &self,
        object: &dyn Object<M>,
        bytes: Option<&[u8; PAGE_SIZE]>,
    ) -> Result<(), FillError> {
        let memory = &*self.fault.core.memory;
        let frame = self.frame(FrameKind::Object, bytes)?;
        let index = self.fault.area.offset_of(self.fault.page);
        let mut mapped = Ok(());
        let mut map = || {
            mapped = self.map_stored(object, &frame);
            mapped.is_ok()
        };
        match object.put(memory, index, frame.frame(), &mut map) {
            Ok(Put::Stored) => {
                let _ = frame.into_raw();
                if bytes.is_none() {
                    memory.count(Row::FramesZeroed, 1);
                }
                Ok(())
            }
            Ok(Put::Removed) => mapped,
            Ok(Put::Exists) => Err(FillError::Exists),
            // If the mount is full, return an out-of-memory error too, as on Linux 7.3 (`mm/shmem.c`,
            // `shmem_mfill_filemap_add`).
            Err(ObjectError::OutOfMemory | ObjectError::NoRoom) => Err(FillError::OutOfMemory),
            Err(ObjectError::BeyondEnd) => Err(FillError::BeyondEnd),
            Err(ObjectError::Io | ObjectError::WouldBlock | ObjectError::InSwap) => {
                Err(FillError::Unavailable)
            }
        }
    }

    /// Maps `frame`, which this fill has just added to the object.
    ///
    /// # Locks
    /// The caller holds the object's lock, so the page stays in the object.
    fn map_stored(&self, object: &dyn Object<M>, frame: &FrameRef<'_, M>) -> Result<(), FillError> {
        loop {
            let generation = object.mappings().generation();
            if self.show_frame(object, generation, frame.clone(), true)? {
                return Ok(());
            }
        }
    }

    /// Looks up the page in the object and maps it. Retries if the result of the lookup became stale. Returns false if
    /// the page is in swap.
    fn show(&self, object: &dyn Object<M>) -> Result<bool, FillError> {
        let memory = &*self.fault.core.memory;
        let index = self.fault.area.offset_of(self.fault.page);
        loop {
            let generation = object.mappings().generation();
            let Some(found) = object.cached(memory, index) else {
                return if object.swapped(index, 1) > 0 {
                    Ok(false)
                } else {
                    Err(FillError::NotThere)
                };
            };
            let frame = memory.frames().adopt(found);
            if self.show_frame(object, generation, frame, false)? {
                return Ok(true);
            }
        }
    }

    /// Maps `frame`, which was looked up in the object when its generation was `generation`. If the generation has
    /// changed, the result of the lookup may be stale: returns false.
    fn show_frame(
        &self,
        object: &dyn Object<M>,
        generation: u64,
        frame: FrameRef<'_, M>,
        stored: bool,
    ) -> Result<bool, FillError> {
        let mut state = Bits::ACCESSED;
        if stored {
            state |= Bits::DIRTY | Bits::SOFT_DIRTY;
        }
        let core = self.fault.core;
        let shown = core.memory.frames().for_entry(frame);
        let mut cursor = self.vacancy(PAGE_OVER)?;
        if object.mappings().generation() != generation {
            return Ok(false);
        }
        cursor.fill(Entry::page(shown.frame(), self.bits(state, stored)))?;
        drop(cursor);
        let _ = shown.into_raw();
        core.note_filled(core.cpu(), 1);
        core.note_objects(core.cpu(), 1);
        Ok(true)
    }

    pub(super) fn poison(&self) -> Result<(), FillError> {
        if !self.fault.area.is_shared() {
            // Give the area an anon_vma, because fork copies the entries of the area, including the marker, only if it
            // has one.
            self.fault.note_private();
        }
        self.vacancy(Marks::empty())?.mark(Marks::POISON)?;
        Ok(())
    }
}

/// Returns the error for a page of an object that could not be swapped in.
fn refusal(error: ObjectError) -> FillError {
    match error {
        ObjectError::BeyondEnd => FillError::NotThere,
        ObjectError::OutOfMemory | ObjectError::NoRoom => FillError::OutOfMemory,
        ObjectError::Io | ObjectError::WouldBlock | ObjectError::InSwap => FillError::Unavailable,
    }
}
