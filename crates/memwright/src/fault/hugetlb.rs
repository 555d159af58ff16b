//! Faults in hugetlb memory (Linux 7.2 `mm/hugetlb.c`, `hugetlb_fault`, `hugetlb_no_page` and `hugetlb_wp`).
//!
//! Each fault holds the lock of the file from start to end, so that two faults on the same page take only one page from
//! the pool.

use memwright_table::{
    Bits, CpuId, Cursor, Entry, Frame, FrameRef, Machine, NoHugePage, PageSize, Present, VirtAddr,
};

use crate::fault::attempt::Fault;
use crate::fault::present::WRITTEN;
use crate::mm::core::Core;
use crate::mm::huge_file::{HugeState, HugeView};
use crate::types::access::{Access, FaultKind};
use crate::types::error::FaultError;
use crate::types::huge::{self, HUGE_PAGES};
use crate::types::stats::Row;
use crate::types::uffd::WatchedFault;
use crate::vma::area::AreaFlags;
use crate::vma::writable::access_bits;

impl<M: Machine> Fault<'_, M> {
    /// Resolves the fault in a hugetlb area.
    #[cold]
    pub(super) fn resolve_hugetlb(self) -> Result<FaultKind, FaultError> {
        let range = huge::around(self.page);
        let fault = Self {
            page: range.start,
            ..self
        };
        let view = fault.hugetlb_view()?;
        let mut state = view.file.lock();
        let cursor = self.core.table.cursor(range);
        match cursor.peek() {
            Entry::Present(page) => fault.resolve_present(cursor, page),
            entry @ (Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_)) => {
                fault.check_absent(entry)?;
                drop(cursor);
                fault.map_hugetlb(&view, &mut state)
            }
        }
    }

    fn hugetlb_view(&self) -> Result<HugeView<'_, M>, FaultError> {
        let object = self.area.object().ok_or(FaultError::NoArea)?;
        object.huge().ok_or(FaultError::NoArea)
    }

    /// Returns the index in the file of the hugetlb page that faulted, in units of huge pages.
    pub(crate) fn huge_index(&self) -> u64 {
        self.area.offset_of(self.page) / HUGE_PAGES
    }

    /// Maps a page where the entry maps none: the file's page, a copy of it, or a new page.
    fn map_hugetlb(
        self,
        view: &HugeView<'_, M>,
        state: &mut HugeState<M>,
    ) -> Result<FaultKind, FaultError> {
        let index = self.huge_index();
        let there = state.page(index)?;
        self.check_watched_hugetlb(there)?;
        self.check_fill(self.core.table.cursor(huge::around(self.page)).peek())?;
        let frames = self.core.memory.frames();
        if self.area.is_shared() {
            let page = match there {
                Some(head) => frames.share(head),
                None => {
                    let promised = state.is_promised(index);
                    let made = view.file.new_page(state, index)?;
                    let head = made.frame();
                    view.file.put_new(state, index, made, promised)?;
                    frames.share(head)
                }
            };
            let stored = if self.access.write {
                Bits::DIRTY | Bits::SOFT_DIRTY
            } else {
                Bits::empty()
            };
            self.enter_hugetlb(page, |inherited| {
                self.object_bits(self.area.view(), Bits::ACCESSED | stored | inherited)
            })?;
            return Ok(FaultKind::Hugetlb);
        }
        match there {
            Some(head) if !self.access.write => {
                self.enter_hugetlb(frames.share(head), |inherited| {
                    self.object_bits(self.area.view(), Bits::ACCESSED | inherited)
                })?;
                Ok(FaultKind::Hugetlb)
            }
            Some(head) => {
                let page = self.take_own_hugetlb(view)?;
                self.core.memory.copy_huge(head, page.frame());
                self.enter_own_hugetlb(view, page)?;
                Ok(FaultKind::Copy)
            }
            None if self.area.flags().contains(AreaFlags::HUGETLB_LOST) => {
                Err(FaultError::NoHugePage)
            }
            None => {
                let page = self.take_own_hugetlb(view)?;
                self.core.memory.clear_huge(page.frame());
                self.enter_own_hugetlb(view, page)?;
                Ok(FaultKind::Hugetlb)
            }
        }
    }

    /// Returns `FaultError::Watched` if a userfaultfd must be notified of the fault: of a minor fault if the file has
    /// the page, otherwise of a missing fault.
    fn check_watched_hugetlb(self, there: Option<Frame>) -> Result<(), FaultError> {
        let flags = self.area.flags();
        if there.is_none() && flags.contains(AreaFlags::UFFD_MISSING) {
            return Err(FaultError::Watched(WatchedFault::Missing));
        }
        if there.is_some() && flags.contains(AreaFlags::UFFD_MINOR) {
            return Err(FaultError::Watched(WatchedFault::Minor));
        }
        Ok(())
    }

    /// Takes a page from the hugetlb pool for private memory. Uses the area's reservation for the page that faulted, if
    /// the reservation is unused. The contents of the page are undefined.
    pub(crate) fn take_own_hugetlb<'a>(
        &'a self,
        view: &HugeView<'a, M>,
    ) -> Result<FrameRef<'a, M>, NoHugePage> {
        match view.own {
            Some(own) => own.take(self.huge_index()),
            None => self.core.take_unreserved(view.file.within()),
        }
    }

    /// Maps `page` in private memory, exclusive to its entry. If mapping fails, restores the reservation.
    fn enter_own_hugetlb(
        &self,
        view: &HugeView<'_, M>,
        page: FrameRef<'_, M>,
    ) -> Result<(), FaultError> {
        self.note_private();
        let entered = self.enter_hugetlb(page, |inherited| self.own_huge_bits(inherited));
        if entered.is_err() {
            self.restore_hugetlb(view);
        }
        entered
    }

    /// Restores the reservation that this fault used. The caller has returned the page to the pool.
    pub(crate) fn restore_hugetlb(&self, view: &HugeView<'_, M>) {
        if let Some(own) = view.own {
            let index = self.huge_index();
            own.restore(index..index + 1);
        }
    }

    /// Maps `page` if the entry maps no page. `bits` computes the bits of the new entry from the bits that a new page
    /// inherits from the old entry.
    fn enter_hugetlb(
        &self,
        page: FrameRef<'_, M>,
        bits: impl FnOnce(Bits) -> Bits,
    ) -> Result<(), FaultError> {
        let mut cursor = self.core.table.cursor(huge::around(self.page));
        let inherited = self.check_fill(cursor.peek())?;
        let entry = Entry::Present(Present {
            frame: page.frame(),
            size: PageSize::Size2M,
            bits: bits(inherited),
        });
        cursor.fill(entry)?;
        let _ = page.into_raw();
        self.core.note_borrowed(self.cpu, HUGE_PAGES);
        Ok(())
    }

    /// Handles a store to a private page that is not exclusive: marks the page exclusive if the entry holds the only
    /// reference to it, otherwise copies it.
    ///
    /// # Locks
    /// The caller holds the lock of the file.
    #[cold]
    pub(super) fn write_shared_hugetlb(
        self,
        mut cursor: Cursor<'_, M>,
        page: Present,
    ) -> Result<FaultKind, FaultError> {
        let memory = &*self.core.memory;
        let frames = memory.frames();
        let anonymous = self.core.is_anonymous(page.frame);
        if anonymous && frames.is_sole_whole(page.frame) {
            let access = access_bits(self.area.rights());
            self.grant(&mut cursor, access | Bits::EXCLUSIVE | WRITTEN);
            return Ok(FaultKind::WriteOnly);
        }
        // The reference keeps the page allocated while it is copied without the lock of the entry.
        let source = frames.share(page.frame);
        drop(cursor);
        let view = self.hugetlb_view()?;
        // Takes an unreserved page if an earlier private page at this index has used up the reservation.
        let copy = self.take_own_hugetlb(&view)?;
        memory.copy_huge(source.frame(), copy.frame());
        let mut cursor = self.core.table.cursor(huge::around(self.page));
        match cursor.peek() {
            Entry::Present(now) if now.frame == page.frame => {
                self.note_private();
                let mut gather = self.core.gather();
                let bits = self.own_huge_bits(now.bits & Bits::UFFD_WP);
                let new = Present {
                    frame: copy.into_raw(),
                    size: PageSize::Size2M,
                    bits,
                };
                cursor.replace_huge(new, &mut gather);
                gather.note_replaced();
                let counts = gather.close();
                self.core.note_gather(self.cpu, counts);
                Ok(FaultKind::Copy)
            }
            // Another thread changed the entry meanwhile: the access faults again and finds the current entry.
            Entry::Present(_)
            | Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_)
            | Entry::Migrating(_) => {
                drop(copy);
                self.restore_hugetlb(&view);
                Ok(FaultKind::Spurious)
            }
        }
    }
}

impl<M: Machine> Core<M> {
    /// Handles a fault for which the hugetlb pool has no page. If the faulting process owns the reservation of the page
    /// and shares the page with its children, unmaps the page from the children (`unmap_ref_private`) and retries, so
    /// that the page becomes exclusive to the owner.
    #[cold]
    pub(crate) fn fault_in_exhausted_pool(
        &self,
        cpu: CpuId,
        address: VirtAddr,
        access: Access,
    ) -> Result<FaultKind, FaultError> {
        self.memory.count_on(cpu, Row::HugetlbExhausted, 1);
        let taken = self.take_back_shared(address);
        let outcome = if taken > 0 {
            self.memory.count_on(cpu, Row::HugetlbTakenBack, taken);
            self.fault(cpu, address, access)
        } else {
            Err(FaultError::NoHugePage)
        };
        match outcome {
            Ok(kind) => self.memory.count_on(cpu, kind.row(), 1),
            Err(_) => self.memory.count_on(cpu, Row::FaultFailed, 1),
        }
        outcome
    }
}
