//! The kernel's own access to memory of any address space: the stack of a program that starts,
//! /proc/PID/mem. Slow, through the table; what is absent is faulted in.

use memwright_table::{Bits, CpuId, Frame, FrameRef, Machine, PAGE_SIZE, PageRange, VirtAddr};

use super::{AddressSpace, Core};
use crate::error::FaultError;
use crate::fault::{Access, FaultKind};
use crate::vma::AreaFlags;

/// Protection keys are the program's own affair.
const FOREIGN_READ: Access = Access {
    user: false,
    ..Access::READ
};
const FOREIGN_WRITE: Access = Access {
    user: false,
    ..Access::WRITE
};

impl<M: Machine> AddressSpace<M> {
    /// Reads memory as the program would.
    ///
    /// # Errors
    /// As for a fault of the program, with how many bytes were read before.
    pub fn read(&self, address: VirtAddr, bytes: &mut [u8]) -> Result<(), (FaultError, usize)> {
        let core = &*self.core;
        let mut done = 0;
        while done < bytes.len() {
            let at = VirtAddr::new(address.as_u64().wrapping_add(done as u64));
            let step = (PAGE_SIZE - at.offset()).min(bytes.len() - done);
            let target = &mut bytes[done..done + step];
            core.with_frame(at, FOREIGN_READ, |frame| {
                core.memory.frames().read(frame, at.offset(), target);
            })
            .map_err(|error| (error, done))?;
            done += step;
        }
        Ok(())
    }

    /// Writes memory as the program would: a private page is copied first.
    ///
    /// # Errors
    /// As for a fault of the program, with how many bytes were written before.
    pub fn write(&self, address: VirtAddr, bytes: &[u8]) -> Result<(), (FaultError, usize)> {
        let core = &*self.core;
        let mut done = 0;
        while done < bytes.len() {
            let at = VirtAddr::new(address.as_u64().wrapping_add(done as u64));
            let step = (PAGE_SIZE - at.offset()).min(bytes.len() - done);
            let source = &bytes[done..done + step];
            core.with_frame(at, FOREIGN_WRITE, |frame| {
                core.memory.frames().write(frame, at.offset(), source);
            })
            .map_err(|error| (error, done))?;
            done += step;
        }
        Ok(())
    }
}

impl<M: Machine> AddressSpace<M> {
    /// A reference of the frame that the page at `address` shows, for whoever reads it later (Linux 7.2 `mm/gup.c`,
    /// `get_user_pages` with `FOLL_GET`). What is written to the page meanwhile may show there; what other processes
    /// write to theirs does not, as a page with two references is nobody's alone.
    ///
    /// # Errors
    /// As for a load by the program.
    pub fn lend(&self, address: VirtAddr) -> Result<FrameRef<'_, M>, FaultError> {
        let core = &*self.core;
        let mut lent = None;
        core.with_frame(address, Access::READ, |frame| {
            lent = Some(core.memory.frames().share(frame));
        })?;
        lent.ok_or(FaultError::NoArea)
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Pins the page at `address`, which the program could write: the frame stays its own, over forks too, until it is
    /// unpinned (design rule 6; Linux 7.2 `mm/gup.c`, `pin_user_pages` with `FOLL_WRITE`). The reference that comes
    /// with it is the caller's.
    ///
    /// # Errors
    /// As for a store by the program.
    pub fn pin(&self, address: VirtAddr) -> Result<FrameRef<'_, M>, FaultError> {
        let core = &*self.core;
        let mut pinned = None;
        core.note_pinning();
        core.with_frame(address, Access::WRITE, |frame| {
            let frames = core.memory.frames();
            frames.pin(frame);
            // Who has pinned it writes without saying so.
            core.memory.swap().forget(frames, frame);
            pinned = Some(frames.share(frame));
        })?;
        pinned.ok_or(FaultError::NoArea)
    }
}

impl<M: Machine> Core<M> {
    /// Calls `act` with the frame of the page at `address`, which permits the access, while the lock of
    /// its entry is held (design rule 11). Accessed and dirty are set as hardware would.
    fn with_frame(
        &self,
        address: VirtAddr,
        access: Access,
        act: impl FnOnce(Frame),
    ) -> Result<(), FaultError> {
        let page = address.page();
        if address >= VirtAddr::USER_END {
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
                    access.allowed_by(area.rights) && !area.flags.contains(AreaFlags::SECRET)
                });
                let mut cursor = self.table.cursor(PageRange::single(page));
                let present = cursor.entry().entry.present();
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

    /// Brings in a page that the kernel is about to reach; its fault is not counted.
    #[cold]
    fn fault_in(
        &self,
        cpu: CpuId,
        address: VirtAddr,
        access: Access,
    ) -> Result<FaultKind, FaultError> {
        self.fault(cpu, address, access)
    }
}
