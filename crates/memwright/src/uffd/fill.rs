//! Filling one page of watched memory (Linux 7.2 `mm/userfaultfd.c`, `mfill_atomic`).

use memwright_table::{
    Bits, Cursor, Entry, FrameKind, FrameRef, Machine, Marker, Marks, PAGE_SIZE, Page, PageRange,
};

use super::{FillError, is_memory, unit_of};
use crate::fault::{Access, Fault};
use crate::object::{Object, ObjectError, Put};
use crate::space::{AddressSpace, access_bits};
use crate::stats::Row;
use crate::track::{arm_written, is_by_dirty};
use crate::vma::AreaFlags;
use crate::writable::{upgrade, writable};

/// What a page is filled with.
#[derive(Clone, Copy, Debug)]
pub enum Fill<'a> {
    /// These bytes, a page of them (`UFFDIO_COPY`).
    Bytes(&'a [u8; PAGE_SIZE]),
    /// Zeroes (`UFFDIO_ZEROPAGE`).
    Zeroes,
    /// What the object has (`UFFDIO_CONTINUE`).
    Object,
    /// Nothing: every access is a bus error (`UFFDIO_POISON`).
    Poison,
}

impl<M: Machine> AddressSpace<M> {
    /// Fills `page`, where nothing is and somebody watches, at once for all threads. Whoever it is may fill: Linux does not
    /// ask (`validate_dst_vma`). It is write-protected from the start if `protect`.
    ///
    /// # Errors
    /// As [`FillError`] says; nothing has changed.
    pub fn fill(&self, page: Page, fill: Fill<'_>, protect: bool) -> Result<(), FillError> {
        let core = &*self.core;
        let areas = core.areas.read(core.cpu());
        let area = areas.map.find(page).ok_or(FillError::NotWatched)?;
        if area.backing().has_watcher(None) {
            return Err(FillError::NotWatched);
        }
        if protect && !area.flags().contains(AreaFlags::UFFD_WP) {
            return Err(FillError::Invalid);
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
            return place.fill_hugetlb(fill);
        }
        place.check_object(&fill)?;
        match (fill, area.object()) {
            (Fill::Poison, _) => place.poison(),
            (Fill::Object, Some(object)) => place.show(&**object),
            (Fill::Object, None) => Err(FillError::Invalid),
            (Fill::Bytes(bytes), Some(object)) if area.is_shared() => {
                place.put(&**object, Some(bytes))
            }
            (Fill::Zeroes, Some(object)) if area.is_shared() => place.put(&**object, None),
            (Fill::Bytes(bytes), Some(_) | None) => place.own_page(bytes),
            (Fill::Zeroes, Some(_) | None) => place.zero_page(),
        }
    }
}

/// What a page with contents may take the place of: no marker but these two (Linux 7.2 `pte_is_uffd_marker`).
pub(super) const PAGE_OVER: Marks = Marks::UFFD_WP.union(Marks::POISON);

/// Where a page is filled.
pub(super) struct Place<'a, M: Machine> {
    /// The fault that it is filled for, or before.
    pub(super) fault: Fault<'a, M>,
    pub(super) protect: bool,
}

impl<M: Machine> Place<'_, M> {
    /// Memory alone is filled, and only as far as its object reaches: private memory too (Linux 7.2
    /// `mm/userfaultfd.c`, `mfill_atomic` and `mfill_file_over_size`).
    fn check_object(&self, fill: &Fill<'_>) -> Result<(), FillError> {
        let area = self.fault.area;
        if !is_memory(area) {
            return Err(FillError::Invalid);
        }
        let index = area.offset_of(self.fault.page);
        match area.object() {
            Some(object) if !object.contains(index) => Err(match fill {
                // To show what is beyond the end is asking for what cannot be (`shmem_get_folio_gfp`).
                Fill::Object => FillError::Invalid,
                Fill::Bytes(_) | Fill::Zeroes | Fill::Poison => FillError::NotThere,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The entry's bits for a page in this state, with the protection, and writable if the rule allows it.
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

    /// A cursor at the entry, unless something is there. Markers with no more than the marks `gives_way` are nothing.
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

    /// Fills the entry unless something is there.
    fn enter(&self, entry: Entry) -> Result<(), FillError> {
        self.vacancy(PAGE_OVER)?.fill(entry)?;
        Ok(())
    }

    /// A frame with these contents, or zeroes.
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

    /// A private page with contents of its own.
    fn own_page(&self, bytes: &[u8; PAGE_SIZE]) -> Result<(), FillError> {
        let frame = self.frame(FrameKind::Anonymous, Some(bytes))?;
        self.fault.note_private();
        let state = Bits::ACCESSED | Bits::DIRTY | Bits::SOFT_DIRTY | Bits::EXCLUSIVE;
        self.enter(Entry::page(frame.frame(), self.bits(state, true)))?;
        let _ = frame.into_raw();
        self.fault.core.note_filled(self.fault.core.cpu(), 1);
        Ok(())
    }

    /// The shared zero frame. A child finds it too.
    fn zero_page(&self) -> Result<(), FillError> {
        let state = Bits::ACCESSED | Bits::BORROWED;
        let bits = self.bits(state, false);
        self.fault.note_private();
        let entry = Entry::page(self.fault.core.memory.zero_frame(), bits);
        self.vacancy(Marks::empty())?.fill(entry)?;
        self.fault.core.note_borrowed(self.fault.core.cpu(), 1);
        Ok(())
    }

    /// A page that the object gets, with these contents or zeroes.
    fn put(
        &self,
        object: &dyn Object<M>,
        bytes: Option<&[u8; PAGE_SIZE]>,
    ) -> Result<(), FillError> {
        let memory = &*self.fault.core.memory;
        let generation = object.mappings().generation();
        let frame = self.frame(FrameKind::Object, bytes)?;
        // The object does not get a page that there is no table to show in: who tries again would be told that the page
        // exists.
        self.vacancy(PAGE_OVER)?.reach()?;
        let shown = frame.clone();
        let index = self.fault.area.offset_of(self.fault.page);
        match object.put(memory, index, frame.frame()) {
            Ok(Put::Stored) => {
                let _ = frame.into_raw();
                if bytes.is_none() {
                    memory.count(Row::FramesZeroed, 1);
                }
            }
            Ok(Put::Exists) => return Err(FillError::Exists),
            // As Linux 7.2 has it (`mm/shmem.c`, `shmem_mfill_atomic_pte`).
            Err(ObjectError::OutOfMemory | ObjectError::NoRoom) => {
                return Err(FillError::OutOfMemory);
            }
            Err(ObjectError::BeyondEnd) => return Err(FillError::NotThere),
            Err(ObjectError::Io | ObjectError::WouldBlock | ObjectError::InSwap) => {
                return Err(FillError::Invalid);
            }
        }
        if self.show_frame(object, generation, shown, true)? {
            return Ok(());
        }
        match self.show_found(object, true) {
            // It came, and was cut off again.
            Err(FillError::NotThere) => Ok(()),
            shown => shown,
        }
    }

    /// A page that the object has already.
    fn show(&self, object: &dyn Object<M>) -> Result<(), FillError> {
        self.show_found(object, false)
    }

    /// Maps the page that the object has, as it is once it can be mapped.
    fn show_found(&self, object: &dyn Object<M>, stored: bool) -> Result<(), FillError> {
        let memory = &*self.fault.core.memory;
        let index = self.fault.area.offset_of(self.fault.page);
        loop {
            let generation = object.mappings().generation();
            let found = object.find(memory, index).map_err(|error| match error {
                ObjectError::BeyondEnd => FillError::NotThere,
                ObjectError::OutOfMemory | ObjectError::NoRoom => FillError::OutOfMemory,
                ObjectError::Io | ObjectError::WouldBlock | ObjectError::InSwap => {
                    FillError::Invalid
                }
            })?;
            let frame = memory.frames().adopt(found.ok_or(FillError::NotThere)?);
            if self.show_frame(object, generation, frame, stored)? {
                return Ok(());
            }
        }
    }

    /// Maps a frame of the object. False if what the object said when it had this generation may be stale by now.
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
        Ok(true)
    }

    pub(super) fn poison(&self) -> Result<(), FillError> {
        if !self.fault.area.is_shared() {
            // A child finds it poisoned too.
            self.fault.note_private();
        }
        self.vacancy(Marks::empty())?.mark(Marks::POISON)?;
        Ok(())
    }
}
