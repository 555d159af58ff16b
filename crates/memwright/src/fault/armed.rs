//! Faults on entries that userfaultfd's read-write protection has made inaccessible (Linux 7.3 `mm/memory.c`,
//! `do_uffd_rwp`, and `mm/huge_memory.c`, `do_huge_pmd_uffd_rwp`).

use memwright_table::{Bits, Cursor, Machine, PageSize, Present};

use crate::fault::attempt::Fault;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::uffd::WatchedFault;
use crate::vma::idle::Arming;
use crate::vma::writable::Grant;

impl<M: Machine> Fault<'_, M> {
    /// Resolves a fault on a page that userfaultfd's read-write protection has made inaccessible (an armed page). The
    /// cursor is at the page. A huge page is not split: all of it becomes accessible.
    #[cold]
    #[inline(never)]
    pub(super) fn resolve_armed(
        self,
        mut cursor: Cursor<'_, M>,
        page: Present,
    ) -> Result<FaultKind, FaultError> {
        let now = self.disarm(&mut cursor, page)?;
        if now.bits.contains(self.access.needs()) {
            return Ok(FaultKind::ReadExec);
        }
        // The entry does not permit the store yet: resolve the write fault here, without another trap.
        drop(cursor);
        self.resolve()
    }

    /// Restores the rights of the area in the entry of the armed page at the cursor. Returns the page as the entry maps
    /// it now.
    ///
    /// # Errors
    /// `FaultError::Watched` if the userfaultfd of the area is in synchronous mode: its handler must resolve the
    /// access.
    pub(super) fn disarm(
        self,
        cursor: &mut Cursor<'_, M>,
        page: Present,
    ) -> Result<Present, FaultError> {
        let core = self.core;
        let watcher = self.area.backing().watcher();
        if !watcher.is_some_and(|watch| watch.counts_accesses()) {
            return Err(FaultError::Watched(WatchedFault::ReadWriteProtected));
        }
        if page.size != PageSize::Size4K {
            cursor.widen();
        }
        let grant = Grant::new(self.area.view(), core.memory.policy().write_upgrade());
        let edit = Arming::of(self.area, grant).disarm(page.bits);
        let mut gather = core.gather();
        let now = cursor.edit(edit.set | Bits::ACCESSED, edit.clear, &mut gather);
        let counts = gather.close();
        core.note_gather(self.cpu, counts);
        Ok(now)
    }
}
