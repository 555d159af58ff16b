//! Forced access for ptrace, which is not limited by the rights of the area (Linux 7.2 `mm/gup.c`, `check_vma_flags`
//! and `can_follow_write_common` with `FOLL_FORCE`). A forced store to private memory changes a private page of the
//! process. The process itself gains no right to store to that page.

use memwright_table::{
    Architecture, Bits, Entry, Frame, Machine, Page, PageSize, Present, VirtAddr,
};

use crate::fault::attempt::Fault;
use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::types::access::{Access, FaultKind};
use crate::types::error::FaultError;
use crate::types::purpose::{Finished, Purpose};
use crate::types::rights::Rights;
use crate::vma::area::AreaFlags;

/// The bits that a forced store sets: those that the hardware sets for a store, and soft-dirty.
const STORED: Bits = Bits::ACCESSED.union(Bits::DIRTY).union(Bits::SOFT_DIRTY);

impl<M: Machine> Core<M> {
    /// Calls `act` with the frame of the page at `address` while the lock of its entry is held (rule:
    /// copy-under-the-entry). If `write` is true, the frame is exclusive to the process.
    ///
    /// # Errors
    /// `Denied` if even a forced access is not permitted. The following are not permitted: accesses beyond the maximum
    /// rights of the area, to secret memory and to device memory, and stores to shared memory, to hugetlb pages and to
    /// pages that a userfaultfd write-protects. Otherwise the errors of a fault.
    pub(crate) fn with_forced_frame(
        &self,
        address: VirtAddr,
        write: bool,
        act: impl FnOnce(Frame),
    ) -> Result<(), FaultError> {
        let page = address.page();
        if page >= M::Arch::USER.end {
            return Err(FaultError::NoArea);
        }
        let access_of_kernel = Access {
            write,
            fetch: false,
            user: false,
        };
        loop {
            let cpu = self.cpu();
            let areas = self.areas.read(cpu);
            let area = areas.map.find(page).ok_or(FaultError::NoArea)?;
            if !may_force(area, write) {
                return Err(FaultError::Denied);
            }
            let fault = Fault {
                core: self,
                cpu,
                areas: &areas,
                area,
                page,
                access: access_of_kernel,
            };
            let (mut cursor, entry) = self.table.entry_of(page);
            match entry {
                Entry::Present(present) if !write || is_own(present) => {
                    let set = if write { STORED } else { Bits::ACCESSED };
                    let mut gather = self.gather();
                    cursor.widen();
                    cursor.edit(set, Bits::empty(), &mut gather);
                    act(present.frame_of(page));
                    let counts = gather.close();
                    self.note_gather(cpu, counts);
                    return Ok(());
                }
                Entry::Present(present) if present.bits.contains(Bits::UFFD_WP) => {
                    if !area.watches_accesses() || area.rights().is_none() {
                        return Err(FaultError::Denied);
                    }
                    fault.disarm(&mut cursor, present)?;
                }
                Entry::Present(present) if present.size != PageSize::Size4K => {
                    fault.split_for_store(cursor)?;
                }
                Entry::Present(present) => {
                    let outcome = fault.copy_present(&mut cursor, present);
                    drop(cursor);
                    self.count_page_faulted_in(outcome)?;
                }
                Entry::Swapped(present) => {
                    let outcome = fault.swap_in(cursor, present);
                    drop(areas);
                    self.finish_forced(page, access_of_kernel, outcome)?;
                }
                Entry::Empty | Entry::Marker(_) | Entry::Migrating(_) => {
                    drop(cursor);
                    let outcome = fault.bring_in();
                    drop(areas);
                    self.finish_forced(page, access_of_kernel, outcome)?;
                }
            }
        }
    }
}

impl<M: Machine> Core<M> {
    /// Completes the reads that the fault of a forced access put off, and counts the fault unless it must be repeated.
    /// After `Ok`, the caller looks up the entry again.
    fn finish_forced(
        &self,
        page: Page,
        access: Access,
        outcome: Result<FaultKind, FaultError>,
    ) -> Result<(), FaultError> {
        let outcome = match outcome {
            Err(FaultError::WouldBlock) => match self.await_reads(page, Purpose::Forced(access)) {
                Finished::Nothing => outcome,
                Finished::Again => return Ok(()),
                Finished::Over(outcome) => outcome,
            },
            outcome => outcome,
        };
        self.count_page_faulted_in(outcome).map(drop)
    }
}

impl<M: Machine> Fault<'_, M> {
    /// Maps the page regardless of the area's rights.
    fn bring_in(self) -> Result<FaultKind, FaultError> {
        if self.area.object().is_some() {
            self.resolve_object()
        } else {
            self.resolve_anonymous()
        }
    }
}

/// Returns whether a forced access to this area is permitted.
fn may_force<M: Machine>(area: &Area<M>, write: bool) -> bool {
    let flags = area.flags();
    let right = if write { Rights::WRITE } else { Rights::READ };
    area.max_rights().contains(right)
        && !flags.intersects(AreaFlags::SECRET | AreaFlags::PHYSICAL)
        && !(write && (area.is_shared() || flags.contains(AreaFlags::HUGETLB)))
}

/// Returns whether a store to `page` is visible only to this process.
fn is_own(page: Present) -> bool {
    page.bits.contains(Bits::EXCLUSIVE)
        && !page
            .bits
            .intersects(Bits::BORROWED | Bits::MERGED | Bits::UFFD_WP)
}
