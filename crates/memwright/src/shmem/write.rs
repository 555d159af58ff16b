//! Filling holes with folios for system calls that write or allocate several pages. The folios are no larger than the
//! range of the call (Linux 7.2 `mm/shmem.c`, `shmem_get_folio` with the end of the write, and
//! `shmem_mapping_size_orders`).

use memwright_table::{FOLIO_ORDER, FrameKind, FrameRef, Machine, PAGE_SIZE};

use crate::mm::object::Object;
use crate::shmem::Shmem;
use crate::store::page_store::State;
use crate::types::error::ObjectError;
use crate::types::folio_orders::FolioOrders;

impl<M: Machine> Shmem<M> {
    /// Prepares a write of the bytes `start..end`, which can extend the object. If the settings allow it, fills the
    /// hole at `start` with the largest folio inside the written range. Returns the offset up to which the caller can
    /// write before it must call this again, or `u64::MAX` if no further call is needed.
    pub fn prepare_write(&self, start: u64, end: u64) -> u64 {
        if !self.may_be_huge(&self.memory, false) {
            return u64::MAX;
        }
        let index = start / PAGE_SIZE as u64;
        let filled = {
            let mut state = self.store.lock();
            self.fill_for_call(&mut state, index, end)
        };
        (index + (1 << filled.unwrap_or(0))) * PAGE_SIZE as u64
    }

    /// Allocates a frame for page `index`, which the caller overwrites completely. Returns `None` if the page exists.
    /// The contents of the frame are undefined. Nothing else can access the frame until [`add_page`](Self::add_page)
    /// makes it part of the object.
    ///
    /// # Errors
    /// No frame is free, or the limit of the mount is reached.
    pub fn frame_to_write(&self, index: u64) -> Result<Option<FrameRef<'_, M>>, ObjectError> {
        let state = self.store.lock();
        if state.pages.stored(index).is_some() {
            return Ok(None);
        }
        state.pages.check_room(1)?;
        state.choose(&self.memory, index);
        Ok(Some(self.memory.frames().allocate(0, FrameKind::Object)?))
    }

    /// Stores a frame from [`frame_to_write`](Self::frame_to_write) as page `index`. If the object ends before the end
    /// of this page, grows the object to that end. If page `index` already exists, changes nothing and returns the
    /// frame.
    ///
    /// # Errors
    /// The limit of the mount is reached, or there is no heap memory.
    pub fn add_page<'a>(
        &self,
        index: u64,
        frame: FrameRef<'a, M>,
    ) -> Result<Option<FrameRef<'a, M>>, ObjectError> {
        let mut state = self.store.lock();
        if state.pages.stored(index).is_some() {
            return Ok(Some(frame));
        }
        state.pages.insert(index, frame.frame())?;
        let _ = frame.into_raw();
        state.size = state.size.max((index + 1) * PAGE_SIZE as u64);
        Ok(None)
    }

    /// Fills the hole at page `index` for a system call with the largest folio that begins at the page and ends at or
    /// before byte `end`. Does this only if the settings allow folios for accesses without a mapping. Returns the order
    /// of the folio.
    pub(super) fn fill_for_call(&self, state: &mut State<M>, index: u64, end: u64) -> Option<u8> {
        let setting = self.setting()?;
        let largest = largest_order(index, end.saturating_sub(index * PAGE_SIZE as u64));
        let huge = self.memory.huge();
        let is_huge = largest == FOLIO_ORDER && huge.allows_shared(setting, false);
        if is_huge && self.make_folio(state, index).is_some() {
            return Some(FOLIO_ORDER);
        }
        let orders = huge.shared_orders(setting, false).and(up_to(largest));
        self.fill_hole(state, index, orders, end / PAGE_SIZE as u64)
    }
}

/// Returns the order of the largest folio that can begin at page `index` and is no longer than `bytes` bytes.
fn largest_order(index: u64, bytes: u64) -> u8 {
    let pages = bytes / PAGE_SIZE as u64;
    let of_length = pages.checked_ilog2().unwrap_or(0);
    of_length
        .min(index.trailing_zeros())
        .min(FOLIO_ORDER.into()) as u8
}

/// Returns the set of all orders up to `largest`.
fn up_to(largest: u8) -> FolioOrders {
    (0..=largest).fold(FolioOrders::NONE, FolioOrders::with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folio_is_as_large_as_what_is_written() {
        const PAGE: u64 = PAGE_SIZE as u64;
        #[rustfmt::skip]
        let rows = [
            // Columns: the index of the page, the maximum length in bytes, the expected order.
            (0,    0,              0),
            (0,    1,              0),
            (0,    2 * PAGE - 1,   0),
            (0,    2 * PAGE,       1),
            (0,    7 * PAGE,       2),
            (4,    64 * PAGE,      2),
            (3,    64 * PAGE,      0),
            (96,   64 * PAGE,      5),
            (512,  512 * PAGE - 1, 8),
            (512,  512 * PAGE,     9),
            (1024, 4096 * PAGE,    9),
            (256,  4096 * PAGE,    8),
        ];
        for (index, bytes, expected) in rows {
            assert_eq!(largest_order(index, bytes), expected, "{index}, {bytes}");
        }
    }
}
