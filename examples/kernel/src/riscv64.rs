//! The machine for Memwright on RISC-V.

use core::arch::asm;
use core::ptr::NonNull;

use memwright_example_boot::{self as boot, CPUS, MEMORY_BASE};
use memwright_table::sync::Threads;
use memwright_table::{CpuId, CpuSet, Frame, FrameRange, Invalidation, Machine};

use crate::Hardware;

/// The extension of the SBI for fences on other harts, and its function that executes SFENCE.VMA.
const REMOTE_FENCE: u64 = 0x5246_4e43;
const SFENCE_VMA: u64 = 1;

// SAFETY: all physical memory is mapped from `MEMORY_BASE` on, and the kernel uses the memory of `memory` through this
// trait only. SFENCE.VMA invalidates before the next instruction. The firmware returns from a remote fence when each
// hart has executed it. The root table is not in `memory`, and its upper half never changes.
unsafe impl Machine for Hardware {
    #[cfg(not(feature = "sv39"))]
    type Arch = memwright_table::Riscv64;
    #[cfg(feature = "sv39")]
    type Arch = memwright_table::Riscv64Sv39;
    type Threads = Self;

    fn memory_base(&self) -> NonNull<u8> {
        NonNull::new(MEMORY_BASE as *mut u8).expect("not null")
    }

    fn has_memory(&self, range: FrameRange) -> bool {
        self.memory.covers(range)
    }

    fn template(&self) -> Option<Frame> {
        Some(self.root)
    }

    fn cpu_count(&self) -> usize {
        CPUS
    }

    fn load_root(&self, root: Frame) {
        let satp = boot::PAGING_MODE << 60 | u64::from(root.number());
        // SAFETY: the upper half of every root is that of the template, in which the kernel is mapped.
        unsafe { asm!("csrw satp, {}", "sfence.vma", in(reg) satp, options(nostack)) };
    }

    fn invalidate_local(&self, what: &Invalidation) {
        let Invalidation::Pages {
            first,
            count,
            stride,
        } = *what
        else {
            // SAFETY: without translations, the processor walks the tables again.
            return unsafe { asm!("sfence.vma", options(nostack)) };
        };
        for index in 0..u64::from(count) {
            let address = first.add(index * stride.pages()).address().as_u64();
            // SAFETY: as above.
            unsafe { asm!("sfence.vma {}", in(reg) address, options(nostack)) };
        }
    }

    /// Makes the firmware execute a fence on each target. A target can be in a program or in the kernel.
    fn invalidate_remote(&self, targets: CpuSet, _root: Frame, what: &[Invalidation]) {
        let harts = targets.iter().map(|cpu| 1 << boot::hart(cpu.index())).sum();
        for one in what {
            let (start, size) = match *one {
                Invalidation::Pages {
                    first,
                    count,
                    stride,
                } => (first.address().as_u64(), u64::from(count) * stride.bytes()),
                Invalidation::All | Invalidation::AllAndTables => (0, u64::MAX),
            };
            // SAFETY: a fence writes to no memory.
            let error = unsafe { boot::sbi(REMOTE_FENCE, SFENCE_VMA, [harts, 0, start, size]) };
            assert!(error == 0, "a remote fence failed: {error}");
        }
    }
}

impl Threads for Hardware {
    fn cpu() -> CpuId {
        CpuId::new(boot::cpu() as u16)
    }

    /// Pauses. A CPU that waits has no requests to serve, because the firmware executes the fences.
    fn relax() {
        core::hint::spin_loop();
    }

    /// Waits for about this time. Debug builds panic when the limits of one wait for a lock add up to five minutes.
    fn halt(limit: Option<u32>) {
        (0..limit.map_or(1, |nanoseconds| nanoseconds / 16)).for_each(|_| Self::relax());
    }
}
