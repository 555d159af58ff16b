//! Faults that map or find a 2 MiB page (Linux 7.2 `mm/huge_memory.c`, `do_huge_pmd_anonymous_page` and
//! `do_huge_pmd_wp_page`).

use core::sync::atomic::Ordering;
use memwright_table::{
    Bits, Cursor, Entry, FOLIO_ORDER, Frame, FrameKind, FrameRef, Machine, PageSize, Present,
};

use crate::fault::attempt::Fault;
use crate::fault::present::WRITTEN;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::folio_use::FolioUse;
use crate::types::huge::{self, HUGE_PAGES};
use crate::types::stats::Row;
use crate::vma::huge::HugeAsker;
use crate::vma::writable::access_bits;

/// Whether a first touch may map a huge page.
pub(super) const MAPS_HUGE: bool = true;

impl<M: Machine> Fault<'_, M> {
    /// Handles the first access to a 2 MiB range that has no lowest-level page table. Returns `None` if a 4 KiB page is
    /// to be mapped.
    #[cold]
    pub(super) fn first_touch_huge(self) -> Option<FaultKind> {
        let range = huge::around(self.page);
        if !self
            .core
            .area_may_be_huge(self.area, range, HugeAsker::Setting)
        {
            return None;
        }
        let memory = &*self.core.memory;
        if !self.access.write && memory.huge().zero_page.load(Ordering::Relaxed) {
            let bits = access_bits(self.area.rights()) | Bits::ACCESSED | Bits::BORROWED;
            let zero = memory.huge_zero_frame()?;
            self.fill_huge(zero, bits)?;
            self.core.note_borrowed(self.cpu, HUGE_PAGES);
            return Some(FaultKind::HugeZeroPage);
        }
        let folio = self.huge_frame()?;
        self.note_private();
        self.fill_huge(folio.frame(), self.own_huge_bits(Bits::empty()))?;
        let _ = folio.into_raw();
        self.core.note_filled_huge(self.cpu);
        Some(self.note_huge())
    }

    /// Counts a 2 MiB folio that the fault has mapped, and returns the kind of the fault (`map_anon_folio_pmd_pf`).
    fn note_huge(&self) -> FaultKind {
        let memory = &*self.core.memory;
        memory.count_folio(FolioUse::FirstTouch, FOLIO_ORDER);
        FaultKind::Huge
    }

    /// Allocates a zeroed folio. Counts a fallback and returns `None` if no folio is available.
    fn huge_frame(&self) -> Option<FrameRef<'_, M>> {
        let memory = &*self.core.memory;
        let frames = memory.frames();
        match frames.allocate_zeroed(FOLIO_ORDER, FrameKind::Anonymous) {
            Ok(folio) => {
                memory.count_on(self.cpu, Row::FramesZeroed, HUGE_PAGES);
                Some(folio)
            }
            Err(_) => {
                memory.count_on(self.cpu, Row::HugeFallbacks, 1);
                let counts = memory.huge().sizes.counts(FOLIO_ORDER);
                counts.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Maps a folio if the entry is empty. Returns `None` if the entry is not empty, or if no page table can be
    /// allocated: the fault then continues with 4 KiB pages.
    fn fill_huge(&self, frame: Frame, bits: Bits) -> Option<()> {
        let mut cursor = self.core.table.cursor(huge::around(self.page));
        match cursor.peek() {
            Entry::Empty if !cursor.is_in_last_table() => {}
            Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_)
            | Entry::Migrating(_)
            | Entry::Present(_) => return None,
        }
        let entry = Entry::Present(Present {
            frame,
            size: PageSize::Size2M,
            bits,
        });
        if cursor.fill(entry).is_err() {
            self.core.memory.count_on(self.cpu, Row::HugeFallbacks, 1);
            return None;
        }
        Some(())
    }

    /// Splits a huge page before a store removes the write protection of one of its 4 KiB pages.
    #[cold]
    pub(super) fn split_for_store(self, mut cursor: Cursor<'_, M>) -> Result<(), FaultError> {
        let mut gather = self.core.gather();
        cursor.split(&mut gather)?;
        let counts = gather.close();
        self.core.note_gather(self.cpu, counts);
        self.core
            .memory
            .count_on(self.cpu, Row::HugeSplitsProtect, 1);
        Ok(())
    }

    /// Handles a store to a huge page that is not exclusive: marks it exclusive if the entry holds the only reference
    /// to it, replaces the huge zero page as a whole, or splits any other page and copies the 4 KiB page that is
    /// written.
    #[cold]
    pub(super) fn write_shared_folio(
        self,
        mut cursor: Cursor<'_, M>,
        page: Present,
    ) -> Result<FaultKind, FaultError> {
        let frames = self.core.memory.frames();
        if page.bits.contains(Bits::BORROWED) {
            if let Some(kind) = self.replace_huge_zero(&mut cursor, page) {
                return Ok(kind);
            }
        } else if !page.bits.contains(Bits::MERGED)
            && self.core.is_anonymous(page.frame)
            && frames.is_sole_whole(page.frame)
        {
            let access = access_bits(self.area.rights());
            self.grant(&mut cursor, access | Bits::EXCLUSIVE | WRITTEN);
            return Ok(FaultKind::WriteOnly);
        }
        let mut gather = self.core.gather();
        cursor.split(&mut gather)?;
        let counts = gather.close();
        self.core.note_gather(self.cpu, counts);
        self.core.memory.count_on(self.cpu, Row::HugeSplitsCopy, 1);
        match cursor.peek() {
            // If the other users have dropped their references to this page of the folio, it needs no copy.
            Entry::Present(page) if self.is_reusable(page) => {
                let access = access_bits(self.area.rights());
                self.grant(&mut cursor, access | Bits::EXCLUSIVE | WRITTEN);
                Ok(FaultKind::WriteOnly)
            }
            Entry::Present(page) => self.copy_present(&mut cursor, page),
            Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => {
                Ok(FaultKind::Spurious)
            }
        }
    }

    /// Replaces the huge zero page by a zeroed folio; returns `None` if none is available
    /// (`do_huge_zero_wp_pmd`).
    fn replace_huge_zero(self, cursor: &mut Cursor<'_, M>, page: Present) -> Option<FaultKind> {
        let folio = self.huge_frame()?;
        self.note_private();
        let bits = self.own_huge_bits(page.bits & Bits::UFFD_WP);
        let mut gather = self.core.gather();
        cursor.replace_huge(
            Present {
                frame: folio.into_raw(),
                size: PageSize::Size2M,
                bits,
            },
            &mut gather,
        );
        gather.note_replaced();
        let counts = gather.close();
        self.core.note_gather(self.cpu, counts);
        self.core.note_resident(self.cpu, HUGE_PAGES);
        Some(self.note_huge())
    }
}
