//! Access by the kernel to the memory of any address space, for example to the stack of a program that starts, or for
//! `/proc/PID/mem`. Each access walks the page table, and faults in missing pages.

use core::sync::atomic::Ordering;
use memwright_table::{
    Architecture, Bits, CpuId, Frame, FrameRef, Machine, PAGE_SIZE, Pinned, VirtAddr,
};

use crate::mm::core::Core;
use crate::mm::space::AddressSpace;
use crate::types::access::{Access, FaultKind};
use crate::types::error::FaultError;
use crate::vma::area::AreaFlags;

/// `user` is false because protection keys apply only to the program's own accesses.
const FOREIGN_READ: Access = Access {
    user: false,
    ..Access::READ
};

/// The flags of areas whose pages only the program itself accesses. The kernel may not access device memory as memory.
const NOT_LENT: AreaFlags = AreaFlags::SECRET.union(AreaFlags::PHYSICAL);

const FOREIGN_WRITE: Access = Access {
    user: false,
    ..Access::WRITE
};

impl<M: Machine> AddressSpace<M> {
    /// Reads memory with the rights of the program.
    ///
    /// # Errors
    /// The error that a load by the program would get, and the number of bytes read before the page that failed.
    pub fn read(&self, address: VirtAddr, bytes: &mut [u8]) -> Result<(), (FaultError, usize)> {
        let core = &*self.core;
        for_pages(address, bytes.len(), |at, done, step| {
            let target = &mut bytes[done..done + step];
            core.with_frame(at, FOREIGN_READ, |frame| {
                core.memory.frames().read(frame, at.offset(), target);
            })
        })
    }

    /// Writes memory with the rights of the program. A private page that is not exclusive is copied first.
    ///
    /// # Errors
    /// The error that a store by the program would get, and the number of bytes written before the page that failed.
    pub fn write(&self, address: VirtAddr, bytes: &[u8]) -> Result<(), (FaultError, usize)> {
        let core = &*self.core;
        for_pages(address, bytes.len(), |at, done, step| {
            let source = &bytes[done..done + step];
            core.with_frame(at, FOREIGN_WRITE, |frame| {
                core.memory.frames().write(frame, at.offset(), source);
            })
        })
    }

    /// Reads memory for a debugger, including memory that the program has no right to read (Linux 7.2 `mm/memory.c`,
    /// `access_remote_vm` with `FOLL_FORCE`).
    ///
    /// # Errors
    /// The error that a load by the program would get, and the number of bytes read before the page that failed.
    /// `Denied` for secret memory and device memory, and for memory whose maximum rights exclude reading.
    pub fn read_forced(
        &self,
        address: VirtAddr,
        bytes: &mut [u8],
    ) -> Result<(), (FaultError, usize)> {
        let core = &*self.core;
        for_pages(address, bytes.len(), |at, done, step| {
            let target = &mut bytes[done..done + step];
            let mut read = |frame| core.memory.frames().read(frame, at.offset(), target);
            match core.with_frame(at, FOREIGN_READ, &mut read) {
                Err(FaultError::Denied) => core.with_forced_frame(at, false, read),
                outcome => outcome,
            }
        })
    }

    /// Writes memory for a debugger. If the program has no right to write private memory, the data is written to a
    /// private copy of the page, which stays read-only for the program (Linux 7.2 `mm/memory.c`, `access_remote_vm`
    /// with `FOLL_FORCE`).
    ///
    /// # Errors
    /// The error that a store by the program would get, and the number of bytes written before the page that failed.
    /// `Denied` for shared memory that the program may not write, and for secret memory and device memory.
    pub fn write_forced(&self, address: VirtAddr, bytes: &[u8]) -> Result<(), (FaultError, usize)> {
        let core = &*self.core;
        for_pages(address, bytes.len(), |at, done, step| {
            let source = &bytes[done..done + step];
            let write = |frame| core.memory.frames().write(frame, at.offset(), source);
            match core.with_frame(at, FOREIGN_WRITE, write) {
                Err(FaultError::Denied) => core.with_forced_frame(at, true, write),
                outcome => outcome,
            }
        })
    }
}

/// Calls `act` once for each page that overlaps the `length` bytes from `address` on. The arguments describe the bytes
/// of the range in this page: the address of the first byte, its offset from `address`, and the number of bytes.
/// Returns the first error of `act`, and the number of bytes before the page for which `act` returned it.
fn for_pages(
    address: VirtAddr,
    length: usize,
    mut act: impl FnMut(VirtAddr, usize, usize) -> Result<(), FaultError>,
) -> Result<(), (FaultError, usize)> {
    let mut done = 0;
    while done < length {
        let at = VirtAddr::new(address.as_u64().wrapping_add(done as u64));
        let step = (PAGE_SIZE - at.offset()).min(length - done);
        act(at, done, step).map_err(|error| (error, done))?;
        done += step;
    }
    Ok(())
}

impl<M: Machine> AddressSpace<M> {
    /// Returns a reference to the frame of the page at `address`, for later reading (Linux 7.2 `mm/gup.c`,
    /// `get_user_pages` with `FOLL_GET`). Later stores by this process to the page can become visible in the frame.
    /// Stores by other processes cannot: the additional reference prevents the page from becoming exclusive to another
    /// process, so these stores copy it.
    ///
    /// # Errors
    /// The error that a load by the program would get; `Denied` for secret memory and device memory.
    pub fn lend(&self, address: VirtAddr) -> Result<FrameRef<'_, M>, FaultError> {
        let core = &*self.core;
        let mut lent = None;
        core.note_lending();
        core.with_frame(address, Access::READ, |frame| {
            lent = Some(core.memory.frames().share(frame));
        })?;
        lent.ok_or(FaultError::NoArea)
    }

    /// Pins the page at `address`, which the program must be able to write. The frame stays exclusive to this address
    /// space, also across forks, until the returned reference is dropped (rule: exclusive-before-pin; Linux 7.2
    /// `mm/gup.c`, `pin_user_pages` with `FOLL_WRITE`).
    ///
    /// # Errors
    /// The error that a store by the program would get; `Denied` for secret memory and device memory.
    pub fn pin(&self, address: VirtAddr) -> Result<Pinned<'_, M>, FaultError> {
        let core = &*self.core;
        let mut pinned = None;
        core.note_pinning();
        core.with_frame(address, Access::WRITE, |frame| {
            let frames = core.memory.frames();
            pinned = Some(frames.share_pinned(frame));
            // The owner of the pin can write to the frame without setting the dirty bit of the entry. Free the copy in
            // swap, because such a write would make it stale.
            core.memory.swap().forget(frames, frame);
        })?;
        pinned.ok_or(FaultError::NoArea)
    }

    /// Accounts `pages` pages as long-term pinned, for a caller that has pinned them (`mm_struct.pinned_vm` of Linux
    /// 7.2).
    pub fn account_pinned(&self, pages: u64) {
        let pinned = self.core.pinned_pages();
        pinned.fetch_add(pages, Ordering::Relaxed);
    }

    /// Unaccounts `pages` pages that the caller accounted with [`account_pinned`](Self::account_pinned).
    pub fn unaccount_pinned(&self, pages: u64) {
        let pinned = self.core.pinned_pages();
        pinned.fetch_sub(pages, Ordering::Relaxed);
    }
}

impl<M: Machine> Core<M> {
    /// Faults in the page at `address` if needed, and calls `act` with its frame while the page-table lock of the entry
    /// is held (rule: copy-under-the-entry). Sets the accessed and dirty bits of the entry as the hardware would.
    fn with_frame(
        &self,
        address: VirtAddr,
        access: Access,
        act: impl FnOnce(Frame),
    ) -> Result<(), FaultError> {
        let page = address.page();
        if page >= M::Arch::USER.end {
            return Err(FaultError::NoArea);
        }
        let cpu = self.cpu();
        loop {
            {
                let areas = self.areas.read(cpu);
                let area = areas.map.find(page);
                if let Some(area) = area {
                    self.check_key(area.rights, access)?;
                }
                let allowed = area.is_some_and(|area| {
                    access.allowed_by(area.rights) && !area.flags().intersects(NOT_LENT)
                });
                let (mut cursor, entry) = self.table.entry_of(page);
                let present = entry.present();
                if let Some(present) = present.filter(|page| page.bits.contains(access.needs())) {
                    if !allowed {
                        return Err(FaultError::Denied);
                    }
                    let written = if access.write {
                        Bits::DIRTY
                    } else {
                        Bits::empty()
                    };
                    let mut gather = self.gather();
                    cursor.widen();
                    cursor.edit(Bits::ACCESSED | written, Bits::empty(), &mut gather);
                    act(present.frame_of(page));
                    let _ = gather.finish();
                    return Ok(());
                }
            }
            self.fault_in(cpu, address, access)?;
        }
    }

    /// Faults in the page at `address`, which the kernel is about to access.
    #[cold]
    fn fault_in(
        &self,
        cpu: CpuId,
        address: VirtAddr,
        access: Access,
    ) -> Result<FaultKind, FaultError> {
        let mut outcome = self.fault(cpu, address, access);
        if outcome == Err(FaultError::WouldBlock) {
            outcome = self.finish_fault(address, access, true);
        }
        self.count_page_faulted_in(outcome)
    }
}
