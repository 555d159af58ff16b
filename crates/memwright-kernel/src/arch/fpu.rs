//! Extended processor state: x87, SSE and AVX of user mode. The kernel itself uses none of these registers.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use memwright_linux_abi::arch::x86_64::regs::FpuArea;

use crate::arch;

/// The bits of XCR0 for x87, SSE and AVX.
const FEATURES: u64 = 0b111;
/// The bit of XCR0 for protection keys.
const KEYS: u64 = 1 << 9;

const CR0_MONITOR: u64 = 1 << 1;
const CR0_EMULATE: u64 = 1 << 2;
const CR0_NUMERIC_ERROR: u64 = 1 << 5;
const CR4_FXSAVE: u64 = 1 << 9;
const CR4_EXCEPTIONS: u64 = 1 << 10;
const CR4_XSAVE: u64 = 1 << 18;
const CR4_KEYS: u64 = 1 << 22;

static SIZE: AtomicUsize = AtomicUsize::new(0);
static ENABLED: AtomicU64 = AtomicU64::new(FEATURES);

/// Enables the state components on this CPU and loads their initial values.
pub fn start() {
    let has_keys = arch::features().keys;
    let enabled = FEATURES | if has_keys { KEYS } else { 0 };
    // SAFETY: `start::processor` has checked that the processor has XSAVE and AVX. The components are x87, SSE and AVX,
    // which must be enabled together, and protection keys if the processor has them.
    unsafe {
        let mut cr0: u64;
        asm!("mov {}, cr0", out(reg) cr0, options(nomem, nostack, preserves_flags));
        cr0 = cr0 & !CR0_EMULATE | CR0_MONITOR | CR0_NUMERIC_ERROR;
        asm!("mov cr0, {}", in(reg) cr0, options(nostack, preserves_flags));
        arch::set_cr4(CR4_FXSAVE | CR4_EXCEPTIONS | CR4_XSAVE);
        if has_keys {
            arch::set_cr4(CR4_KEYS);
        }
        asm!("xsetbv", in("ecx") 0, in("eax") enabled as u32, in("edx") 0, options(nomem, nostack, preserves_flags));
    }
    ENABLED.store(enabled, Ordering::Relaxed);
    SIZE.store(arch::enabled_state_size(), Ordering::Relaxed);
    restore(&FpuArea::INITIAL);
}

/// Returns the size of the enabled components in the standard format, in bytes.
pub fn size() -> usize {
    SIZE.load(Ordering::Relaxed)
}

/// Returns the enabled components as bits of XCR0.
pub fn features() -> u64 {
    ENABLED.load(Ordering::Relaxed)
}

/// Returns the accesses that protection keys deny on this CPU; 0 if the processor has no keys.
pub fn key_rights() -> u32 {
    if features() & KEYS == 0 {
        return 0;
    }
    let rights: u32;
    // SAFETY: `start` enabled the keys on every CPU.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    rights
}

/// Sets the accesses that protection keys deny on this CPU. Does nothing if the processor has no keys.
pub fn set_key_rights(rights: u32) {
    if features() & KEYS == 0 {
        return;
    }
    // SAFETY: `start` enabled the keys on every CPU; the kernel's own memory has no keys.
    unsafe {
        asm!("wrpkru", in("ecx") 0, in("eax") rights, in("edx") 0, options(nostack, preserves_flags));
    }
}

/// Stores the extended state of this CPU in `area`.
#[inline(always)]
pub fn save(area: &mut FpuArea) {
    // SAFETY: the area is larger than the enabled components need, and aligned to 64 bytes.
    unsafe {
        asm!("xsave64 [{}]", in(reg) area.bytes.as_mut_ptr(), in("eax") u32::MAX, in("edx") u32::MAX, options(nostack, preserves_flags));
    }
}

/// Loads the extended state of this CPU from `area`. [`save`] wrote `area`, or the personality checked it: a header
/// that the processor does not accept would cause a fault in the kernel.
#[inline(always)]
pub fn restore(area: &FpuArea) {
    // SAFETY: the area is larger than the enabled components need, and aligned to 64 bytes; the kernel keeps no data in
    // these registers.
    unsafe {
        asm!("xrstor64 [{}]", in(reg) area.bytes.as_ptr(), in("eax") u32::MAX, in("edx") u32::MAX, options(nostack, readonly, preserves_flags));
    }
}
