//! The machine for Memwright on x86-64.

use core::arch::asm;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use memwright_example_boot::{self as boot, CPUS, MEMORY_BASE};
use memwright_table::sync::Threads;
use memwright_table::{CpuId, CpuSet, Frame, FrameRange, Invalidation, Machine, X86_64};

use crate::Hardware;

/// For each CPU, the number of invalidations that the other CPU has requested of it, and how many of them it has
/// served.
static REQUESTED: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];
static SERVED: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];

// SAFETY: all physical memory is mapped from `MEMORY_BASE` on, and the kernel uses the memory of `memory` through this
// trait only. `mov cr3` and `invlpg` invalidate before the next instruction. `invalidate_remote` returns when each
// target has served its request, which it does by `mov cr3`. The root table is not in `memory`, and its upper half
// never changes.
unsafe impl Machine for Hardware {
    type Arch = X86_64;
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
        let address = root.address().as_u64();
        // SAFETY: the upper half of every root is that of the template, in which the kernel is mapped.
        unsafe { asm!("mov cr3, {}", in(reg) address, options(nostack, preserves_flags)) };
    }

    fn invalidate_local(&self, what: &Invalidation) {
        let Invalidation::Pages {
            first,
            count,
            stride,
        } = *what
        else {
            return invalidate_all();
        };
        for index in 0..u64::from(count) {
            let address = first.add(index * stride.pages()).address().as_u64();
            // SAFETY: without a translation, the processor walks the tables again.
            unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
        }
    }

    /// Makes each target drop all of its translations, and with them those of `_what`.
    fn invalidate_remote(&self, targets: CpuSet, _root: Frame, _what: &[Invalidation]) {
        for target in targets.iter().map(CpuId::index) {
            let request = REQUESTED[target].fetch_add(1, Ordering::SeqCst) + 1;
            boot::interrupt_other();
            while SERVED[target].load(Ordering::Acquire) < request {
                // Two CPUs that wait for each other serve each other's requests.
                Self::relax();
            }
        }
    }
}

impl Threads for Hardware {
    fn cpu() -> CpuId {
        CpuId::new(boot::cpu() as u16)
    }

    /// Serves the requests of the other CPU. The kernel runs with interrupts disabled, so it calls this function in
    /// each wait, and after an interrupt of a program.
    fn relax() {
        core::hint::spin_loop();
        let cpu = boot::cpu();
        let requested = REQUESTED[cpu].load(Ordering::Acquire);
        if SERVED[cpu].load(Ordering::Relaxed) != requested {
            invalidate_all();
            SERVED[cpu].store(requested, Ordering::Release);
        }
    }

    /// Waits for about this time. Debug builds panic when the limits of one wait for a lock add up to five minutes.
    fn halt(limit: Option<u32>) {
        (0..limit.map_or(1, |nanoseconds| nanoseconds / 16)).for_each(|_| Self::relax());
    }
}

/// Invalidates all translations and cached entries of the calling CPU. No entry is global, so loading CR3 drops all of
/// them.
fn invalidate_all() {
    // SAFETY: the loaded root stays loaded.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags)) };
}
