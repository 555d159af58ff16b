//! Populating areas ahead of access (Linux 7.2 `mm/gup.c`, `populate_vma_page_range`, and, for calls that populate as
//! their last step, `__mm_populate`).

use memwright_table::sync::{PausePoints, pause_point};
use memwright_table::{Bits, Machine, Page, PageRange, PageSize, VirtAddr};

use crate::fault::attempt::Fault;
use crate::mm::areas::Areas;
use crate::mm::check;
use crate::mm::core::Core;
use crate::mm::space::{AREAS, Area, PAGES};
use crate::mm::theme::Residency;
use crate::types::access::Access;
use crate::types::advice::Advice;
use crate::types::error::{AdviseError, FaultError, LockError, PopulateError, Stopped};
use crate::types::faulted_in::FaultedIn;
use crate::types::purpose::{Finished, Purpose};
use crate::types::rights::Rights;
use crate::vma::area::AreaFlags;
use crate::vma::map::Position;

/// The range that is still to be populated after a call such as `mmap` or `mlock` has succeeded. If a page cannot be
/// faulted in, the rest of its area stays unpopulated, and the program gets the error at its next access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ToPopulate {
    rest: PageRange,
}

impl Advice {
    /// Returns whether advice that populates memory populates it for writing. Returns `None` for other advice.
    pub const fn populates(self) -> Option<bool> {
        if matches!(self, Self::PopulateRead) {
            return Some(false);
        }
        if matches!(self, Self::PopulateWrite) {
            return Some(true);
        }
        None
    }
}

impl ToPopulate {
    pub(crate) fn new(rest: PageRange) -> Self {
        Self { rest }
    }

    /// Returns an empty range at `page`.
    pub(crate) fn nothing_at(page: Page) -> Self {
        Self::new(PageRange::new(page, page))
    }

    /// Returns whether the range is empty: nothing is left to populate.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the first page left to populate.
    pub fn next(&self) -> Page {
        self.rest.start
    }
}

/// The flags of areas that are never populated. Device memory is mapped completely from the start.
const NOT_POPULATED: AreaFlags = AreaFlags::SECRET.union(AreaFlags::PHYSICAL);

/// A new mapping, and the part of it that is to be populated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Mapped {
    /// The address of the first byte of the mapping.
    pub start: VirtAddr,
    /// The range to pass to [`populate_rest`](Residency::populate_rest) after the userfaultfd contexts have been
    /// notified.
    pub to_populate: ToPopulate,
}

/// Returns whether the area's pages are copied at once if a protection change has made the area writable.
fn is_gained<M: Machine>(area: &Area<M>) -> bool {
    area.rights.contains(Rights::WRITE)
        && area.flags().contains(AreaFlags::LOCKED)
        && !area.flags().contains(AreaFlags::LOCK_ON_FAULT)
        && !area.is_shared()
}

impl<M: Machine> Residency<'_, M> {
    /// Faults in the pages of `length` bytes from `address` on: for writing if `write` is set, otherwise for reading.
    ///
    /// # Errors
    /// See [`AdviseError`]. Pages below the address in the error are resident.
    pub fn populate(&self, address: VirtAddr, length: u64, write: bool) -> Result<(), AdviseError> {
        let mut rest = self.to_populate(address, length)?;
        self.populate_onward(&mut rest, write)
    }

    /// Returns the pages of `length` bytes from `address` on, for [`populate_onward`](Self::populate_onward).
    ///
    /// # Errors
    /// [`AdviseError::Misaligned`] if the address is not aligned, [`AdviseError::OutOfRange`] if the range wraps around.
    pub fn to_populate(&self, address: VirtAddr, length: u64) -> Result<ToPopulate, AdviseError> {
        let range = check::pages(address, length)?;
        Ok(ToPopulate::new(range))
    }

    /// Populates `rest` like [`populate`](Self::populate). After an error, `rest` is the range that is not populated
    /// yet: the caller frees memory or waits for the userfaultfd handler, then calls this again.
    ///
    /// # Errors
    /// See [`AdviseError`].
    pub fn populate_onward(&self, rest: &mut ToPopulate, write: bool) -> Result<(), AdviseError> {
        self.space.core.populate_as(&mut rest.rest, write)
    }

    /// Populates `rest`, which was [locked](Self::begin_lock). After an error, `rest` is the range that is not
    /// populated yet.
    ///
    /// # Errors
    /// [`LockError::Fault`] and [`LockError::Watched`].
    pub fn populate_locked(&self, rest: &mut ToPopulate) -> Result<(), LockError> {
        let populated = self.space.core.populate_strictly(rest.rest);
        Ok(populated.inspect_err(|stopped| rest.rest.start = stopped.at.page())?)
    }

    /// Populates `rest` as the rights of its areas allow. If a page of an area cannot be faulted in, skips the rest of
    /// that area. After an error, `rest` is the range that is left. The caller retries, or first [skips the
    /// area](Self::pass_area).
    ///
    /// # Errors
    /// [`PopulateError`] if the next page needs memory or the userfaultfd handler.
    pub fn populate_rest(&self, rest: &mut ToPopulate) -> Result<(), PopulateError> {
        while let Err(stopped) = self.space.core.populate_range(rest.rest) {
            rest.rest.start = stopped.at.page();
            if let Some(awaited) = stopped.awaits() {
                return Err(PopulateError::Watched(awaited));
            }
            if stopped.error == FaultError::OutOfMemory {
                return Err(PopulateError::OutOfMemory);
            }
            self.pass_area(rest);
        }
        Ok(())
    }

    /// Skips the rest of the area at the start of `rest`.
    pub fn pass_area(&self, rest: &mut ToPopulate) {
        let range = &mut rest.rest;
        let areas = self.space.core.areas.read(self.space.core.cpu());
        let area = areas.map.find(range.start);
        // The area may have been unmapped since population stopped.
        let end = area.map_or(range.start.add(1), Area::end);
        range.start = end.min(range.end);
    }

    /// Populates `rest` as far as possible without waiting for a userfaultfd handler or for memory.
    pub fn populate_now(&self, mut rest: ToPopulate) {
        while self.populate_rest(&mut rest).is_err() {
            self.pass_area(&mut rest);
        }
    }
}

impl<M: Machine> Core<M> {
    /// Populates `range` as the rights of its areas allow. Private writable memory gets private pages. Skips areas that
    /// are locked on fault, and areas without any rights.
    fn populate_range(&self, range: PageRange) -> Result<(), Stopped> {
        self.populate_where(range, true, |area| {
            !area.rights.is_none() && !area.flags().contains(AreaFlags::LOCK_ON_FAULT)
        })
    }

    /// Like [`populate_range`](Self::populate_range), but also populates areas that are locked on fault. Fails for
    /// memory without any rights, for which `mlock` returns an error.
    pub(crate) fn populate_strictly(&self, range: PageRange) -> Result<(), Stopped> {
        self.populate_where(range, true, |_| true)
    }

    /// Copies the locked private pages that a protection change made writable, so that stores to them do not fault
    /// (`mm/mprotect.c`, `mprotect_fixup`). After an error in one area, continues with the next area. If a page needs a
    /// userfaultfd handler, the rest of its area is left to later faults: Linux holds the mmap lock here, so it cannot
    /// wait for the handler.
    #[cold]
    #[inline(never)]
    pub(crate) fn populate_gained(&self) {
        let gained = self.areas.write().take_gained();
        for range in gained {
            let _ = self.populate_where(range, false, is_gained);
        }
    }

    /// Attaches an anon_vma to the area at `position`, if the area became writable and `populate_gained` will copy its
    /// pages. Linux makes the copies before it changes the next area, and the anon_vma determines whether the two areas
    /// merge. A protection change therefore calls this before it changes the next area.
    #[cold]
    #[inline(never)]
    pub(crate) fn found_gained(&self, areas: &Areas<M>, position: Position) {
        let area = areas.map.get(position);
        // An area whose protection key denies the store gets no copies, so it needs no anon_vma.
        if is_gained(area) && self.check_key(area.rights, Access::WRITE).is_ok() {
            Fault {
                core: self,
                cpu: self.cpu(),
                areas,
                area,
                page: area.start(),
                access: Access::WRITE,
            }
            .note_private();
        }
    }

    /// Populates the areas of `range` for which `wanted` returns true. If `repeats` is set, a failed fault is [counted
    /// a second time](Self::count_repeated) where Linux repeats it.
    fn populate_where(
        &self,
        range: PageRange,
        repeats: bool,
        wanted: impl Fn(&Area<M>) -> bool,
    ) -> Result<(), Stopped> {
        let mut next = range.start;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        while next < range.end {
            points.round();
            let cpu = self.cpu();
            let areas = self.areas.read(cpu);
            let Some(position) = areas.map.at_or_after(next) else {
                return Ok(());
            };
            let area = areas.map.get(position);
            let part = area.range().intersect(PageRange::new(next, range.end));
            if part.is_empty() && area.start() >= range.end {
                return Ok(());
            }
            if wanted(area) && !area.flags().intersects(NOT_POPULATED) {
                let private_writable = area.rights.contains(Rights::WRITE) && !area.is_shared();
                let access = if private_writable {
                    Access::WRITE
                } else {
                    Access::READ
                };
                // Check the key even if every page is resident already (`mm/gup.c`, `check_vma_flags`).
                self.check_key(area.rights, access)
                    .map_err(|error| Stopped {
                        at: part.start.address(),
                        access,
                        error,
                    })?;
                let touched = self.touch(&areas, area, part, access);
                let end = area.end();
                drop(areas);
                next = match touched {
                    Ok(()) => end,
                    Err(stopped) => self.finish_touch(stopped).inspect_err(|&stopped| {
                        if repeats {
                            self.count_repeated(part.start, stopped);
                        }
                    })?,
                };
                continue;
            }
            next = area.end();
        }
        Ok(())
    }

    /// Performs `MADV_POPULATE_READ` or `MADV_POPULATE_WRITE` on `rest`, and advances it past the populated pages.
    /// Unlike a load, `MADV_POPULATE_READ` needs the read right itself (`mm/gup.c`, `check_vma_flags`).
    pub(crate) fn populate_as(&self, rest: &mut PageRange, write: bool) -> Result<(), AdviseError> {
        let (access, right) = if write {
            (Access::WRITE, Rights::WRITE)
        } else {
            (Access::READ, Rights::READ)
        };
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        let began = rest.start;
        while !rest.is_empty() {
            let next = rest.start;
            points.round();
            let areas = self.areas.read(self.cpu());
            let Some(area) = areas.map.find(next) else {
                return Err(AdviseError::Hole(next.address()));
            };
            let refused =
                !area.rights.contains(right) || self.check_key(area.rights, access).is_err();
            if refused || area.flags().intersects(NOT_POPULATED) {
                return Err(AdviseError::NotApplicable(next.address()));
            }
            let part = area.range().intersect(*rest);
            let touched = self.touch(&areas, area, part, access);
            drop(areas);
            rest.start = match touched {
                Ok(()) => part.end,
                Err(stopped) => self.finish_touch(stopped).inspect_err(|&stopped| {
                    self.count_repeated(began, stopped);
                    rest.start = stopped.at.page();
                })?,
            };
        }
        Ok(())
    }

    /// Completes the reads from a swap device for which [`touch`](Self::touch) has stopped. The caller has released the
    /// lock of the areas. Returns the page to continue with.
    ///
    /// # Errors
    /// `stopped` itself, if `touch` has not stopped for such reads, or the error of the page that was read.
    #[cold]
    fn finish_touch(&self, stopped: Stopped) -> Result<Page, Stopped> {
        let page = stopped.at.page();
        if stopped.error != FaultError::WouldBlock {
            return Err(stopped);
        }
        match self.await_reads(page, Purpose::Access(stopped.access)) {
            Finished::Nothing => Err(stopped),
            Finished::Again => Ok(page),
            Finished::Over(outcome) => match self.count_page_faulted_in(outcome) {
                Ok(_) => Ok(page),
                Err(error) => Err(Stopped { error, ..stopped }),
            },
        }
    }

    /// Counts the failed fault of a page a second time, unless the page is `began`, the first page requested. Linux
    /// first returns the pages before the failed one, and then repeats the fault on it (`mm/gup.c`,
    /// `__get_user_pages`).
    fn count_repeated(&self, began: Page, stopped: Stopped) {
        if stopped.at.page() > began {
            let mut faults = FaultedIn::default();
            faults.note(Err(stopped.error));
            self.count_faulted_in(faults);
        }
    }

    /// Faults in each page of `range`, a part of `area`, whose entry does not permit `access` yet.
    fn touch(
        &self,
        areas: &Areas<M>,
        area: &Area<M>,
        range: PageRange,
        access: Access,
    ) -> Result<(), Stopped> {
        let mut faults = FaultedIn::default();
        let touched = self.touch_pages(areas, area, range, access, &mut faults);
        self.count_faulted_in(faults);
        if area.watches_accesses() {
            let end = touched.map_or_else(|stopped| stopped.at.page(), |()| range.end);
            self.mark_accessed(area, PageRange::new(range.start, end));
        }
        touched
    }

    /// Faults in the pages for [`touch`](Self::touch) and counts the faults in `faults`.
    fn touch_pages(
        &self,
        areas: &Areas<M>,
        area: &Area<M>,
        range: PageRange,
        access: Access,
        faults: &mut FaultedIn,
    ) -> Result<(), Stopped> {
        let cpu = self.cpu();
        let mut page = range.start;
        let mut points = PausePoints::<M::Threads>::every(PAGES);
        while page < range.end {
            let permitted = || {
                if access.write {
                    self.permits_marked(page)
                } else {
                    self.permits(page, access)
                }
            };
            let fault = Fault {
                core: self,
                cpu,
                areas,
                area,
                page,
                access,
            };
            // If the fault maps a page that userfaultfd has write-protected, the next iteration takes the
            // write-protection fault.
            let size = loop {
                if let Some(size) = permitted() {
                    break size;
                }
                let outcome = fault.resolve();
                faults.note(outcome);
                outcome.map_err(|error| Stopped {
                    at: page.address(),
                    access,
                    error,
                })?;
            };
            if size == PageSize::Size4K {
                points.round();
            } else {
                // The fault may have zeroed a huge page, which takes as long as many faults on small pages.
                pause_point::<M::Threads>();
            }
            // Continue after the page, which may be a huge one.
            page = Page::new((page.number() | (size.pages() - 1)) + 1);
        }
        Ok(())
    }

    /// If the entry at `page` permits a store, sets its dirty and soft-dirty bits and returns the size of the page. On
    /// Linux such an entry may be write-protected: population then takes a write fault, which sets both bits.
    fn permits_marked(&self, page: Page) -> Option<PageSize> {
        let mut cursor = self.table.cursor(PageRange::single(page));
        let present = cursor.peek().present()?;
        if !present.bits.contains(Access::WRITE.needs()) {
            return None;
        }
        if !present.bits.contains(Bits::DIRTY) {
            if present.size != PageSize::Size4K {
                cursor.widen();
            }
            cursor.grant(Bits::DIRTY | Bits::SOFT_DIRTY);
        }
        Some(present.size)
    }

    /// Returns the size of the page at `page` if its entry permits `access`, otherwise `None`.
    fn permits(&self, page: Page, access: Access) -> Option<PageSize> {
        let present = self.table.look(PageRange::single(page)).peek().present()?;
        let permits = present.bits.contains(access.needs());
        permits.then_some(present.size)
    }
}
