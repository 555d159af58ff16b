//! Filling one huge page of a registered hugetlb area (Linux 7.2 `mm/hugetlb.c`, `hugetlb_mfill_atomic_pte`).

use memwright_table::{
    Bits, Entry, FOLIO_FRAMES, Frame, FrameRef, Machine, NoHugePage, Page, PageSize, Present,
};

use crate::fault::attempt::Fault;
use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::huge_file::HugeView;
use crate::mm::space::Area;
use crate::mm::theme::Uffd;
use crate::types::access::Access;
use crate::types::error::{FillError, ObjectError};
use crate::types::huge::{self, HUGE_PAGES};
use crate::types::stats::Row;
use crate::types::uffd::Fill;
use crate::uffd::fill::{PAGE_OVER, Place};
use crate::vma::area::AreaFlags;

impl<M: Machine> Uffd<'_, M> {
    /// Fills the huge page that begins at `page`, which must not be mapped. To write the contents, calls `write` with
    /// each frame of the huge page and the frame's index in the huge page.
    ///
    /// # Errors
    /// The error of `write`, or a [`FillError`]. On error nothing has changed.
    pub fn fill_hugetlb<E: From<FillError>>(
        &self,
        page: Page,
        protect: bool,
        write: &mut dyn FnMut(Frame, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let core = &*self.space.core;
        let (head, object, index) = {
            let areas = core.areas.read(core.cpu());
            let area = watched_area(&areas, page, protect)?;
            let object = area.object().ok_or(FillError::NotApplicable)?.clone();
            let place = place(core, &areas, area, page, protect);
            (place.take_hugetlb()?, object, place.fault.huge_index())
        };
        let mut written = Ok(());
        for part in 0..FOLIO_FRAMES {
            written = write(Frame::new(head.number() + part), u64::from(part));
            if written.is_err() {
                break;
            }
        }
        let taken = core.memory.frames().adopt_whole(head);
        let areas = core.areas.read(core.cpu());
        let filled = match watched_area(&areas, page, protect) {
            Ok(area) => {
                let place = place(core, &areas, area, page, protect);
                let entered = written.and_then(|()| Ok(place.enter_hugetlb(taken)?));
                if entered.is_err() {
                    place.restore();
                }
                entered
            }
            Err(error) => Err(error.into()),
        };
        if let Some(view) = object.huge() {
            view.file.lock().end_filling(index);
        }
        filled
    }
}

fn watched_area<M: Machine>(
    areas: &Areas<M>,
    page: Page,
    protect: bool,
) -> Result<&Area<M>, FillError> {
    let area = areas.map.find(page).ok_or(FillError::NotWatched)?;
    if area.backing().has_watcher(None) {
        return Err(FillError::NotWatched);
    }
    let hugetlb = area.flags().contains(AreaFlags::HUGETLB) && huge::around(page).start == page;
    if !hugetlb {
        return Err(FillError::NotApplicable);
    }
    if protect && !area.flags().contains(AreaFlags::UFFD_WP) {
        return Err(FillError::NotProtectable);
    }
    Ok(area)
}

fn place<'a, M: Machine>(
    core: &'a Core<M>,
    areas: &'a Areas<M>,
    area: &'a Area<M>,
    page: Page,
    protect: bool,
) -> Place<'a, M> {
    Place {
        fault: Fault {
            core,
            cpu: core.cpu(),
            areas,
            area,
            page,
            access: Access::WRITE,
        },
        protect,
    }
}

impl<M: Machine> Place<'_, M> {
    /// Executes a poison fill or a fill with the object's page. Returns `FillError::NotApplicable` for any other fill,
    /// or if the page is not the first page of a huge page.
    pub(super) fn fill_hugetlb(&self, fill: Fill<'_>) -> Result<(), FillError> {
        if huge::around(self.fault.page).start != self.fault.page {
            return Err(FillError::NotApplicable);
        }
        match fill {
            Fill::Poison => self.poison(),
            Fill::Object => self.show_hugetlb(),
            // `UFFDIO_ZEROPAGE` is rejected too: there is no zero page for hugetlb.
            Fill::Zeroes | Fill::Bytes(_) => Err(FillError::NotApplicable),
        }
    }

    fn view(&self) -> Result<HugeView<'_, M>, FillError> {
        let view = self.fault.area.object().and_then(|object| object.huge());
        view.ok_or(FillError::NotApplicable)
    }

    /// Allocates a huge page from the pool for the range to fill, and marks its index in the file as being filled.
    /// Fails if the range is mapped already. The contents of the page are undefined. The caller owns one reference to
    /// the frame.
    fn take_hugetlb(&self) -> Result<Frame, FillError> {
        let view = self.view()?;
        let index = self.fault.huge_index();
        let mut state = view.file.lock();
        let there = state.page(index).map_err(|_| FillError::NotThere)?;
        drop(self.vacancy(PAGE_OVER)?);
        if !state.begin_filling(index)? {
            return Err(FillError::Busy);
        }
        let page = if !self.fault.area.is_shared() {
            self.fault.take_own_hugetlb(&view)
        } else if there.is_some() {
            state.end_filling(index);
            return Err(FillError::Exists);
        } else {
            view.file.take_page(&mut state, index)
        };
        match page {
            Ok(page) => Ok(page.into_raw()),
            Err(NoHugePage) => {
                state.end_filling(index);
                self.fault.core.memory.count(Row::HugetlbExhausted, 1);
                Err(FillError::OutOfMemory)
            }
        }
    }

    /// Restores the reservation of the huge page that was allocated for this fill. The huge page has been freed.
    fn restore(&self) {
        let Ok(view) = self.view() else {
            return;
        };
        if self.fault.area.is_shared() {
            view.file.restore(self.fault.huge_index());
        } else {
            self.fault.restore_hugetlb(&view);
        }
    }

    /// Maps a filled huge page. For shared memory, first adds the page to the file.
    fn enter_hugetlb(&self, page: FrameRef<'_, M>) -> Result<(), FillError> {
        let view = self.view()?;
        let index = self.fault.huge_index();
        let mut state = view.file.lock();
        let mut bits = Bits::ACCESSED | Bits::DIRTY | Bits::SOFT_DIRTY;
        let there = state.page(index).map_err(|_| FillError::NotThere)?;
        if !self.fault.area.is_shared() {
            self.fault.note_private();
            bits |= Bits::EXCLUSIVE;
            return self.map(page, bits, true);
        }
        if there.is_some() {
            return Err(FillError::Exists);
        }
        let shown = page.clone();
        state.put(index, page).map_err(|_| FillError::OutOfMemory)?;
        let mapped = self.map(shown, bits, true);
        if mapped.is_err() {
            // Remove the page again. It was not visible to other threads, because the file is still locked.
            state.take_back(index);
        }
        mapped
    }

    /// Maps the page that the file already has. In a private area the page is not exclusive, so that the first store
    /// copies it.
    fn show_hugetlb(&self) -> Result<(), FillError> {
        let view = self.view()?;
        let state = view.file.lock();
        let there = match state.page(self.fault.huge_index()) {
            Ok(there) => there.ok_or(FillError::NotThere)?,
            Err(
                ObjectError::BeyondEnd
                | ObjectError::OutOfMemory
                | ObjectError::NoRoom
                | ObjectError::Io
                | ObjectError::WouldBlock
                | ObjectError::InSwap,
            ) => return Err(FillError::NotThere),
        };
        let page = self.fault.core.memory.frames().share(there);
        self.map(page, Bits::ACCESSED, false)
    }

    fn map(&self, page: FrameRef<'_, M>, state: Bits, stored: bool) -> Result<(), FillError> {
        self.vacancy(PAGE_OVER)?.fill(Entry::Present(Present {
            frame: page.frame(),
            size: PageSize::Size2M,
            bits: self.bits(state, stored),
        }))?;
        let _ = page.into_raw();
        self.fault
            .core
            .note_borrowed(self.fault.core.cpu(), HUGE_PAGES);
        Ok(())
    }
}
