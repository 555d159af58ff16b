//! Making pages resident before they are used (Linux 7.2 `mm/gup.c`, `populate_vma_page_range`, and `__mm_populate` for
//! what calls make resident last).

use memwright_table::sync::{PausePoints, pause_point};
use memwright_table::{Bits, Machine, Page, PageRange, PageSize, VirtAddr};

use super::check;
use super::{AREAS, AddressSpace, Advice, Area, Areas, Core, PAGES};
use crate::error::{AdviseError, FaultError, LockError, PopulateError, Stopped};
use crate::fault::{Access, Fault, FaultedIn};
use crate::vma::{AreaFlags, Position, Rights};

/// What a call is still to make resident, once all else that it does is done. It succeeded: what keeps a page from being
/// had ends its area and no more, and the program's next access meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ToPopulate {
    rest: PageRange,
}

impl Advice {
    /// Whether it makes memory resident, and if so, whether as a store does.
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

    /// Nothing.
    pub(crate) fn nothing_at(page: Page) -> Self {
        Self::new(PageRange::new(page, page))
    }

    /// Whether there is nothing left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The first page that is left.
    pub fn next(&self) -> Page {
        self.rest.start
    }
}

/// Where something is mapped now, and what of it is to be made resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Mapped {
    /// Where it begins.
    pub start: VirtAddr,
    /// For [`populate_rest`](AddressSpace::populate_rest), when watchers were told.
    pub to_populate: ToPopulate,
}

/// Whether copies are made for an area that became writable.
fn is_gained<M: Machine>(area: &Area<M>) -> bool {
    area.rights.contains(Rights::WRITE)
        && area.flags.contains(AreaFlags::LOCKED)
        && !area.flags.contains(AreaFlags::LOCK_ON_FAULT)
        && !area.is_shared()
}

impl<M: Machine> AddressSpace<M> {
    /// Makes the pages of `length` bytes resident, as by a load of each, or by a store.
    ///
    /// # Errors
    /// As [`AdviseError`] says; pages below the address are resident.
    pub fn populate(&self, address: VirtAddr, length: u64, write: bool) -> Result<(), AdviseError> {
        let mut rest = self.to_populate(address, length)?;
        self.populate_onward(&mut rest, write)
    }

    /// The pages of `length` bytes, for [`populate_onward`](Self::populate_onward).
    ///
    /// # Errors
    /// [`AdviseError::Misaligned`].
    pub fn to_populate(&self, address: VirtAddr, length: u64) -> Result<ToPopulate, AdviseError> {
        let range = check::pages(address, length).map_err(|_| AdviseError::Misaligned)?;
        Ok(ToPopulate::new(range))
    }

    /// Makes `rest` resident as [`populate`](Self::populate) does. On failure `rest` holds the pages that
    /// are not resident yet: the caller frees memory, or waits for the watcher, and calls again.
    ///
    /// # Errors
    /// As [`AdviseError`] says.
    pub fn populate_onward(&self, rest: &mut ToPopulate, write: bool) -> Result<(), AdviseError> {
        self.core.populate_as(&mut rest.rest, write)
    }

    /// Makes `rest`, which was [locked](Self::begin_lock), resident, and goes on as
    /// [`populate_onward`](Self::populate_onward).
    ///
    /// # Errors
    /// [`LockError::Fault`] and [`LockError::Watched`].
    pub fn populate_locked(&self, rest: &mut ToPopulate) -> Result<(), LockError> {
        let populated = self.core.populate_strictly(rest.rest);
        Ok(populated.inspect_err(|stopped| rest.rest.start = stopped.at.page())?)
    }

    /// Makes `rest` resident as its areas allow, but for areas of which a page cannot be had. Where it fails, `rest` is
    /// what is still to be done: the same again, or without [this area](Self::pass_area).
    ///
    /// # Errors
    /// [`PopulateError`] where the caller can do something for the next page.
    pub fn populate_rest(&self, rest: &mut ToPopulate) -> Result<(), PopulateError> {
        while let Err(stopped) = self.core.populate_range(rest.rest) {
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

    /// Leaves the area as it is where `rest` begins.
    pub fn pass_area(&self, rest: &mut ToPopulate) {
        let range = &mut rest.rest;
        let areas = self.core.areas.read(self.core.cpu());
        let area = areas.map.find(range.start);
        // It may be gone meanwhile.
        let end = area.map_or(range.start.add(1), Area::end);
        range.start = end.min(range.end);
    }

    /// Makes `rest` resident as far as it can be had without waiting for a watcher or for memory.
    pub fn populate_now(&self, mut rest: ToPopulate) {
        while self.populate_rest(&mut rest).is_err() {
            self.pass_area(&mut rest);
        }
    }
}

impl<M: Machine> Core<M> {
    /// Makes `range` resident as its areas allow: private writable memory gets its own pages, and what is locked as it
    /// faults none.
    fn populate_range(&self, range: PageRange) -> Result<(), Stopped> {
        self.populate_where(range, true, |area| {
            !area.rights.is_none() && !area.flags.contains(AreaFlags::LOCK_ON_FAULT)
        })
    }

    /// The same, but memory without any right is an error: `mlock` reports it.
    pub(crate) fn populate_strictly(&self, range: PageRange) -> Result<(), Stopped> {
        self.populate_where(range, true, |_| true)
    }

    /// Locked private pages that a protection change made writable are copied now, not by a fault
    /// (`mm/mprotect.c`, `mprotect_fixup`). What stops it in one area does not in the next. No watcher is asked: Linux
    /// holds the lock of the address space meanwhile, and leaves the rest of an area to faults where one would be.
    #[cold]
    #[inline(never)]
    pub(crate) fn populate_gained(&self) {
        let gained = self.areas.write().take_gained();
        for range in gained {
            let _ = self.populate_where(range, false, is_gained);
        }
    }

    /// Gives the area at `position`, which may have become writable, the lineage that its copies will want: before the
    /// next area changes, as Linux makes them then, and what becomes one depends on it.
    #[cold]
    #[inline(never)]
    pub(crate) fn found_gained(&self, areas: &Areas<M>, position: Position) {
        let area = areas.map.get(position);
        // Whom the area's key refuses gets no copies.
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

    /// Makes `range` resident in the areas that are `wanted`. `repeats` says whether the fault of a page that cannot be had
    /// is [counted again](Self::count_repeated).
    fn populate_where(
        &self,
        range: PageRange,
        repeats: bool,
        wanted: impl Fn(&Area<M>) -> bool,
    ) -> Result<(), Stopped> {
        let mut next = range.start;
        let mut points = PausePoints::every(AREAS);
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
            if wanted(area) && !area.flags.contains(AreaFlags::SECRET) {
                let private_writable = area.rights.contains(Rights::WRITE) && !area.is_shared();
                let access = if private_writable {
                    Access::WRITE
                } else {
                    Access::READ
                };
                // Also where each page is there already (`mm/gup.c`, `check_vma_flags`).
                self.check_key(area.rights, access)
                    .map_err(|error| Stopped {
                        at: part.start.address(),
                        access,
                        error,
                    })?;
                let touched = self.touch(&areas, area, part, access);
                if repeats {
                    self.count_repeated(part.start, touched);
                }
                touched?;
            }
            next = area.end();
        }
        Ok(())
    }

    /// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` of `rest`, which is what is left in the end. Unlike a load, the
    /// former asks for the right to read itself (`mm/gup.c`, `check_vma_flags`).
    pub(crate) fn populate_as(&self, rest: &mut PageRange, write: bool) -> Result<(), AdviseError> {
        let (access, right) = if write {
            (Access::WRITE, Rights::WRITE)
        } else {
            (Access::READ, Rights::READ)
        };
        let mut points = PausePoints::every(AREAS);
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
            if refused || area.flags.contains(AreaFlags::SECRET) {
                return Err(AdviseError::NotApplicable(next.address()));
            }
            let part = area.range().intersect(*rest);
            let touched = self.touch(&areas, area, part, access);
            self.count_repeated(began, touched);
            touched.inspect_err(|stopped| rest.start = stopped.at.page())?;
            rest.start = part.end;
        }
        Ok(())
    }

    /// Counts the fault of a page that could not be had once more: Linux reports the pages before it first, and asks for it
    /// again, unless it is the first that is asked for (`mm/gup.c`, `__get_user_pages`).
    fn count_repeated(&self, began: Page, touched: Result<(), Stopped>) {
        let Err(stopped) = touched else {
            return;
        };
        if stopped.at.page() > began {
            let mut faults = FaultedIn::default();
            faults.note(Err(stopped.error));
            self.count_faulted_in(faults);
        }
    }

    /// Faults in each page of `range`, which lies in `area`, that does not permit the access yet.
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
        touched
    }

    /// Does what [`touch`](Self::touch) says and counts the pages in `faults`.
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
        let mut points = PausePoints::every(PAGES);
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
            // A fault may leave a page that a watcher has protected: the next one is his.
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
                // It may have been filled with zeroes.
                pause_point();
            }
            // A huge page is touched once.
            page = Page::new((page.number() | (size.pages() - 1)) + 1);
        }
        Ok(())
    }

    /// The size of the page at `page`, if its entry permits a store. Then it is marked as after one: who tracks stores
    /// would see a store here (Linux takes a write fault for its write-protected entry).
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

    /// The size of the page at `page`, if its entry permits the access already.
    fn permits(&self, page: Page, access: Access) -> Option<PageSize> {
        let present = self.table.look(PageRange::single(page)).peek().present()?;
        let permits = present.bits.contains(access.needs());
        permits.then_some(present.size)
    }
}
