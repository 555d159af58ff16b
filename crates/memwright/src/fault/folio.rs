//! A first touch that maps a folio of several pages (Linux 7.2 `mm/memory.c`, `alloc_anon_folio`).

use memwright_table::{Entry, FolioPages, Machine, PageRange};

use crate::fault::attempt::Fault;
use crate::types::access::FaultKind;
use crate::types::folio_orders::folio_around;
use crate::types::folio_use::FolioUse;
use crate::vma::writable::NEW;

impl<M: Machine> Fault<'_, M> {
    /// Handles a store to untouched memory for which the settings enable large folios. Allocates the largest folio that
    /// contains the page and whose entries are all empty, and maps it by 4 KiB entries. Returns `None` if no folio fits
    /// or no memory is available. The caller then maps a single page.
    #[cold]
    #[inline(never)]
    pub(super) fn first_touch_folio(self) -> Option<FaultKind> {
        let orders = self.core.folio_orders(self.area);
        let orders = orders.around(self.page, self.area.range());
        let largest = orders.largest_first().next()?;
        let empty = self.empty_around(folio_around(self.page, largest));
        let orders = orders.around(self.page, empty);
        let memory = &*self.core.memory;
        let purpose = FolioUse::FirstTouch;
        let (pages, order) = memory.largest_folio(purpose, orders, |_| {})?;
        self.note_private();
        self.fill_folio(folio_around(self.page, order), pages)?;
        memory.count_folio(purpose, order);
        Some(FaultKind::Folio)
    }

    /// Returns the largest part of `range` that contains the page that faulted and whose entries are all empty.
    fn empty_around(&self, range: PageRange) -> PageRange {
        let (mut start, mut end) = (range.start, range.end);
        let mut look = self.core.table.look(range);
        look.each_filled(|extent, _| {
            let filled = extent.range;
            if filled.end <= self.page {
                start = start.max(filled.end);
                return true;
            }
            end = filled.start.max(start);
            false
        });
        PageRange::new(start, end)
    }

    /// Maps the pages of a new folio at `range`. Returns `None` if an entry is not empty, or if no page table can be
    /// allocated.
    fn fill_folio(&self, range: PageRange, pages: FolioPages<'_, M>) -> Option<()> {
        let bits = self.area.entry_bits(NEW);
        let core = self.core;
        let mut cursor = core.table.cursor(range);
        if !is_free(cursor.peek()) {
            return None;
        }
        // The lock of the lowest-level table is held from here on: no entry changes between the check of the entries
        // and the last fill.
        cursor.reach().ok()?;
        let at = |number| range.start.add(number);
        for number in 0..range.len() {
            cursor.seek(at(number));
            if !is_free(cursor.peek()) {
                return None;
            }
        }
        for (number, frame) in (0..).zip(pages) {
            cursor.seek(at(number));
            if cursor.fill(Entry::page(frame.frame(), bits)).is_err() {
                return None;
            }
            let _ = frame.into_raw();
        }
        core.note_filled(self.cpu, range.len());
        Some(())
    }
}

/// Returns whether the entry is empty. A new page then inherits nothing from it.
const fn is_free(entry: Entry) -> bool {
    match entry {
        Entry::Empty => true,
        Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) | Entry::Present(_) => false,
    }
}
