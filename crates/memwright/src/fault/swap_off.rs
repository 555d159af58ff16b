//! Swap-in without an access: for swapoff (Linux 7.2 `mm/swapfile.c`, `unuse_mm`), or for a collapse.

use core::sync::atomic::Ordering;
use memwright_table::{Architecture, Cursor, Entry, Machine, Page, PageRange, Swapped};

use crate::fault::attempt::Fault;
use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::space::{AddressSpace, Area};
use crate::swap::place::Place;
use crate::types::access::{Access, FaultKind};
use crate::types::error::FaultError;
use crate::types::purpose::{Finished, Purpose};

impl<M: Machine> AddressSpace<M> {
    /// Swaps in at most `most` pages that are on the swap device with index `device`, in ascending order from page
    /// `from`. Returns the page to continue with, or `None` at the end of the address space.
    ///
    /// # Errors
    /// `OutOfMemory` or `Io`; pages that were swapped in before stay in memory.
    pub fn bring_back(
        &self,
        device: usize,
        from: Page,
        most: u64,
    ) -> Result<Option<Page>, FaultError> {
        let core = &*self.core;
        let mut left = most;
        let mut from = from.min(M::Arch::USER.end);
        loop {
            let (page, error) = match core.bring_areas_back(device, from, &mut left) {
                Ok(stopped) => return Ok(stopped),
                Err(failed) => failed,
            };
            if error != FaultError::WouldBlock {
                return Err(error);
            }
            from = match core.finish_reads(page, Purpose::Unasked) {
                // Another thread reads the page. It maps the page, or leaves it to the next pass of swapoff over all
                // address spaces.
                Finished::Nothing => page.add(1),
                Finished::Again => page,
                Finished::Over(outcome) => {
                    outcome?;
                    page.add(1)
                }
            };
        }
    }
}

impl<M: Machine> Core<M> {
    /// Swaps in the pages from `from` on that are on swap device `device`. Subtracts their number from `left`. Returns
    /// the page to continue with once `left` is 0, or `None` after the last area.
    fn bring_areas_back(
        &self,
        device: usize,
        from: Page,
        left: &mut u64,
    ) -> Result<Option<Page>, (Page, FaultError)> {
        let areas = self.areas.read(self.cpu());
        let rest = PageRange::new(from, M::Arch::USER.end);
        for area in areas.map.overlapping(rest) {
            let range = area.range().intersect(rest);
            let stopped = self.bring_back(&areas, area, range, Some(device), left)?;
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
        Ok(None)
    }

    /// Swaps in the pages of `range`, a part of `area`, that are on swap device `device`, or on any device if `device`
    /// is `None`. Subtracts their number from `left`. Returns the page to continue with once `left` is 0, or `None` at
    /// the end of the range.
    ///
    /// # Errors
    /// The page that was not swapped in, and the error. After `WouldBlock`, the caller releases the locks and
    /// [completes](Self::finish_reads) the read of this page.
    pub(crate) fn bring_back(
        &self,
        areas: &Areas<M>,
        area: &Area<M>,
        range: PageRange,
        device: Option<usize>,
        left: &mut u64,
    ) -> Result<Option<Page>, (Page, FaultError)> {
        let is_on = |slot| device.is_none_or(|number| Place::of(slot).device == number);
        let mut cursor = self.table.cursor(range).pausing();
        while let Some(extent) = cursor.next_filled() {
            match extent.entry {
                Entry::Swapped(page) if is_on(page.slot) => {
                    if *left == 0 {
                        return Ok(Some(cursor.position()));
                    }
                    *left -= 1;
                    let fault = Fault {
                        core: self,
                        cpu: self.cpu(),
                        areas,
                        area,
                        page: cursor.position(),
                        access: Access::READ,
                    };
                    let kind = fault.bring_unasked(&mut cursor, page);
                    let kind = kind.map_err(|error| (fault.page, error))?;
                    if device.is_none() {
                        self.note_read_back(kind);
                    }
                    cursor.pause_point();
                }
                Entry::Swapped(_)
                | Entry::Empty
                | Entry::Marker(_)
                | Entry::Migrating(_)
                | Entry::Present(_) => {}
            }
            if !cursor.advance() {
                break;
            }
        }
        Ok(None)
    }

    /// Counts the swap-in of a page for a collapse, if it read a device. Linux counts a major fault for each page read
    /// for a collapse (`do_swap_page`), but none for swapoff (`unuse_pte`).
    pub(crate) fn note_read_back(&self, kind: FaultKind) {
        if kind.is_major() {
            let read_back = &self.memory.huge().scan.read_back;
            read_back.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<M: Machine> Fault<'_, M> {
    /// Swaps in the page of the entry under the cursor, and maps it as not accessed.
    fn bring_unasked(
        self,
        cursor: &mut Cursor<'_, M>,
        swapped: Swapped,
    ) -> Result<FaultKind, FaultError> {
        let back = self.bring(swapped, false)?;
        Ok(self.show_unasked(cursor, swapped, back))
    }
}
