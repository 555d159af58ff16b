//! A fault in private anonymous memory (Linux 7.2 `mm/memory.c`, `do_anonymous_page`).

use memwright_table::{Bits, Cursor, Entry, FrameKind, Machine};

use crate::fault::attempt::Fault;
use crate::fault::huge::MAPS_HUGE;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::stats::Row;
use crate::vma::writable::{NEW, access_bits};

impl<M: Machine> Fault<'_, M> {
    /// Resolves the fault in private anonymous memory.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn resolve_anonymous(self) -> Result<FaultKind, FaultError> {
        let (mut cursor, entry) = self.core.table.entry_of(self.page);
        match entry {
            Entry::Present(page) => self.resolve_present(cursor, page),
            Entry::Swapped(page) => self.swap_in(cursor, page),
            Entry::Empty | Entry::Marker(_) | Entry::Migrating(_) => {
                let inherited = self.check_fill(entry)?;
                if MAPS_HUGE && !cursor.is_in_last_table() && matches!(entry, Entry::Empty) {
                    // No lowest-level page table covers this 2 MiB range, so a huge page may be mapped. Under a marker,
                    // 4 KiB pages are mapped instead, and each inherits the bits of the marker.
                    drop(cursor);
                    if let Some(kind) = self.first_touch_huge() {
                        return Ok(kind);
                    }
                    return self.resolve_small();
                }
                if self.access.write {
                    if self.may_fill_folio(entry) {
                        drop(cursor);
                        return self.resolve_small();
                    }
                    self.demand_zero(&mut cursor, inherited)
                } else {
                    self.zero_page(&mut cursor, inherited)
                }
            }
        }
    }

    /// Returns whether a store to a page with the entry `entry` may map a folio of several pages: the entry must be
    /// empty, and a setting must enable such folios. Called in most write faults that find no page.
    #[cfg_attr(feature = "inline", inline(always))]
    fn may_fill_folio(self, entry: Entry) -> bool {
        self.core.memory.huge().sizes.any_of_pages() && matches!(entry, Entry::Empty)
    }

    /// Resolves the fault in private anonymous memory without huge pages: maps a folio of several pages if the settings
    /// enable one, otherwise a single page.
    #[cold]
    fn resolve_small(self) -> Result<FaultKind, FaultError> {
        if self.access.write {
            if let Some(kind) = self.first_touch_folio() {
                return Ok(kind);
            }
        }
        let (mut cursor, entry) = self.core.table.entry_of(self.page);
        match entry {
            Entry::Present(page) => self.resolve_present(cursor, page),
            Entry::Swapped(page) => self.swap_in(cursor, page),
            Entry::Empty | Entry::Marker(_) | Entry::Migrating(_) => {
                let inherited = self.check_fill(entry)?;
                if self.access.write {
                    self.demand_zero(&mut cursor, inherited)
                } else {
                    self.zero_page(&mut cursor, inherited)
                }
            }
        }
    }

    /// Handles a store to untouched memory: maps a zeroed frame.
    #[cfg_attr(feature = "inline", inline(always))]
    fn demand_zero(
        self,
        cursor: &mut Cursor<'_, M>,
        inherited: Bits,
    ) -> Result<FaultKind, FaultError> {
        let memory = &*self.core.memory;
        let frame = memory.frames().allocate_zeroed(0, FrameKind::Anonymous)?;
        self.note_private();
        let bits = self.area.entry_bits(NEW | inherited);
        cursor.fill(Entry::page(frame.frame(), bits))?;
        let _ = frame.into_raw();
        memory.count_on(self.cpu, Row::FramesZeroed, 1);
        self.core.note_filled(self.cpu, 1);
        Ok(FaultKind::DemandZero)
    }

    /// Handles a read of untouched memory: maps the shared zero page, to which the entry holds no reference.
    #[cfg_attr(feature = "inline", inline(always))]
    fn zero_page(
        self,
        cursor: &mut Cursor<'_, M>,
        inherited: Bits,
    ) -> Result<FaultKind, FaultError> {
        let bits = access_bits(self.area.rights()) | Bits::ACCESSED | Bits::BORROWED | inherited;
        cursor.fill(Entry::page(self.core.memory.zero_frame(), bits))?;
        self.core.note_zero_page(self.cpu);
        Ok(FaultKind::ZeroPage)
    }
}
