//! Extended processor state: x87, SSE and AVX of user mode. The kernel itself uses none of it.

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use memwright_linux::arch::x86_64::regs::FpuArea;

use crate::arch;

/// XCR0: x87, SSE, AVX.
pub const FEATURES: u64 = 0b111;

const CR0_MONITOR: u64 = 1 << 1;
const CR0_EMULATE: u64 = 1 << 2;
const CR0_NUMERIC_ERROR: u64 = 1 << 5;
const CR4_FXSAVE: u64 = 1 << 9;
const CR4_EXCEPTIONS: u64 = 1 << 10;
const CR4_XSAVE: u64 = 1 << 18;

static SIZE: AtomicUsize = AtomicUsize::new(0);

/// Enables the state components on this CPU and loads their initial values.
pub fn start() {
    // SAFETY: `boot` has checked that the processor has XSAVE and AVX; the components are the three
    // that belong together.
    unsafe {
        let mut cr0: u64;
        asm!("mov {}, cr0", out(reg) cr0, options(nomem, nostack, preserves_flags));
        cr0 = cr0 & !CR0_EMULATE | CR0_MONITOR | CR0_NUMERIC_ERROR;
        asm!("mov cr0, {}", in(reg) cr0, options(nostack, preserves_flags));
        arch::set_cr4(CR4_FXSAVE | CR4_EXCEPTIONS | CR4_XSAVE);
        asm!("xsetbv", in("ecx") 0, in("eax") FEATURES as u32, in("edx") 0, options(nomem, nostack, preserves_flags));
    }
    SIZE.store(arch::enabled_state_size(), Ordering::Relaxed);
    restore(&FpuArea::INITIAL);
}

/// Bytes that the enabled components take in the standard format.
pub fn size() -> usize {
    SIZE.load(Ordering::Relaxed)
}

/// Stores the state of this CPU.
#[inline(always)]
pub fn save(area: &mut FpuArea) {
    // SAFETY: the area is larger than the enabled components need, and aligned to 64 bytes.
    unsafe {
        asm!("xsave64 [{}]", in(reg) area.bytes.as_mut_ptr(), in("eax") u32::MAX, in("edx") u32::MAX, options(nostack, preserves_flags));
    }
}

/// Loads the state of this CPU. `area` was written by [`save`] or checked by the personality: a
/// header that the processor refuses would fault in the kernel.
#[inline(always)]
pub fn restore(area: &FpuArea) {
    // SAFETY: as in `save`; the kernel itself keeps nothing in these registers.
    unsafe {
        asm!("xrstor64 [{}]", in(reg) area.bytes.as_ptr(), in("eax") u32::MAX, in("edx") u32::MAX, options(nostack, readonly, preserves_flags));
    }
}
