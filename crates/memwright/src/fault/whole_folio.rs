//! Faults that map a huge page of an object by one entry (Linux 7.2 `mm/memory.c`, `do_set_pmd`).

use memwright_table::{Bits, Entry, Machine, PageSize, Present};

use crate::fault::attempt::Fault;
use crate::mm::object::Object;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::huge::{self, HUGE_PAGES};
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::huge::{HugeAsker, may_be_huge};

impl<M: Machine> Fault<'_, M> {
    /// Returns whether one entry may map the object's huge page around the fault: the huge page is inside the area, and
    /// the area and the object are aligned equally. The area must have no markers, and no userfaultfd, because a
    /// userfaultfd needs faults on single pages. The fault must not be a store to private memory, which needs a copy.
    pub(super) fn fits_huge(self) -> bool {
        let range = huge::around(self.page);
        let area = self.area;
        area.start() <= range.start
            && range.end <= area.end()
            && area.offset_of(range.start) % HUGE_PAGES == 0
            && !area.flags().intersects(AreaFlags::MARKED | AreaFlags::UFFD)
            && (area.is_shared() || !self.access.write)
    }

    /// Maps the object's huge page around the fault. The object creates the huge page if the settings allow it. Returns
    /// `None` if a 4 KiB page is to be mapped.
    #[cold]
    pub(super) fn map_folio(
        self,
        object: &dyn Object<M>,
        generation: u64,
    ) -> Result<Option<FaultKind>, FaultError> {
        let core = self.core;
        let flags = self.area.flags();
        let mode = core.memory.huge_mode();
        // Processes and areas can disable huge pages. The huge page mode has no effect here: it applies to anonymous
        // memory only.
        if !may_be_huge(flags, mode, core.huge_refusal(), HugeAsker::Program) {
            return Ok(None);
        }
        let range = huge::around(self.page);
        let first = self.area.offset_of(range.start);
        let asked = flags.contains(AreaFlags::HUGE);
        let Some(head) = object.folio(&core.memory, first, asked) else {
            return Ok(None);
        };
        let folio = core.memory.frames().adopt_whole(head);
        if self.access.write && object.notify_first_write() {
            object.first_write(self.area.offset_of(self.page))?;
        }
        let written = if self.access.write {
            Bits::DIRTY | Bits::SOFT_DIRTY
        } else {
            Bits::empty()
        };
        let bits = self.object_bits(self.area.view(), Bits::ACCESSED | written);
        let mut cursor = core.table.cursor(range);
        match cursor.peek() {
            Entry::Empty if !cursor.is_in_last_table() => {}
            Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_)
            | Entry::Migrating(_)
            | Entry::Present(_) => return Ok(None),
        }
        if object.mappings().generation() != generation {
            return Ok(None);
        }
        let entry = Entry::Present(Present {
            frame: head,
            size: PageSize::Size2M,
            bits,
        });
        if cursor.fill(entry).is_err() {
            core.memory.count_on(self.cpu, Row::HugeFallbacks, 1);
            return Ok(None);
        }
        let _ = folio.into_raw();
        drop(cursor);
        core.note_filled_huge(self.cpu);
        core.note_objects(self.cpu, HUGE_PAGES);
        core.memory.count_mapped_whole();
        Ok(Some(FaultKind::Huge))
    }
}
