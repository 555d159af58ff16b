//! The machine for Memwright on AArch64.

use core::arch::asm;
use core::ptr::NonNull;

use memwright_example_boot::{self as boot, CPUS, MEMORY_BASE};
use memwright_table::sync::Threads;
use memwright_table::{Aarch64, CpuId, CpuSet, Frame, FrameRange, Invalidation, Machine};

use crate::Hardware;

// SAFETY: all physical memory is mapped from `MEMORY_BASE` on, and the kernel uses the memory of `memory` through this
// trait only. TLBI invalidates on all CPUs, and the DSB after it waits until they have. The root table has no entries,
// so a CPU that has it loaded caches no translation of user memory.
unsafe impl Machine for Hardware {
    type Arch = Aarch64;
    type Threads = Self;

    fn memory_base(&self) -> NonNull<u8> {
        NonNull::new(MEMORY_BASE as *mut u8).expect("not null")
    }

    fn has_memory(&self, range: FrameRange) -> bool {
        self.memory.covers(range)
    }

    fn cpu_count(&self) -> usize {
        CPUS
    }

    /// Drops the translations of the old root before it loads the new one, because both have the ASID 0. The barrier
    /// completes the stores to the new root, too.
    fn load_root(&self, root: Frame) {
        let [empty, new] = [self.root, root].map(|frame| frame.address().as_u64());
        // SAFETY: the kernel is mapped by TTBR1_EL1.
        unsafe {
            asm!("msr ttbr0_el1, {}", "isb", "tlbi vmalle1", "dsb ish", "msr ttbr0_el1, {}", "isb",
                in(reg) empty, in(reg) new, options(nostack, preserves_flags));
        }
    }

    fn invalidate_local(&self, what: &Invalidation) {
        invalidate(core::slice::from_ref(what));
    }

    /// Needs no interrupt, because the TLBI instructions apply to all processors.
    fn invalidate_remote(&self, _targets: CpuSet, _root: Frame, what: &[Invalidation]) {
        invalidate(what);
    }
}

/// Invalidates translations on all CPUs. The first barrier completes the stores to the tables, the second one the
/// invalidations.
fn invalidate(what: &[Invalidation]) {
    // SAFETY: a barrier.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    for one in what {
        let Invalidation::Pages {
            first,
            count,
            stride,
        } = *one
        else {
            // SAFETY: without translations, the processors walk the tables again.
            unsafe { asm!("tlbi vmalle1is", options(nostack, preserves_flags)) };
            continue;
        };
        for index in 0..u64::from(count) {
            // The operand is the number of a page, and the ASID 0.
            let page = first.add(index * stride.pages()).number();
            // SAFETY: as above.
            unsafe { asm!("tlbi vae1is, {}", in(reg) page, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

impl Threads for Hardware {
    fn cpu() -> CpuId {
        CpuId::new(boot::cpu() as u16)
    }

    /// A CPU that waits has nothing to serve, because its TLB receives the invalidations.
    fn relax() {
        core::hint::spin_loop();
    }

    /// Waits for about this time. Debug builds panic when the limits of one wait for a lock add up to five minutes.
    fn halt(limit: Option<u32>) {
        (0..limit.map_or(1, |nanoseconds| nanoseconds / 16)).for_each(|_| Self::relax());
    }
}
