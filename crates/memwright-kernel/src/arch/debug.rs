//! The debug registers of this CPU.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use memwright_linux_abi::arch::x86_64::debug::DebugRegisters;

/// DR6: its value after a reset.
const STATUS_RESET: u64 = 0xffff_0ff0;
/// DR7: the bit that is always one.
const CONTROL_FIXED: u64 = 1 << 10;

/// The values last loaded into the debug registers of a CPU: DR0 to DR3, and DR7.
pub struct Loaded([AtomicU64; 5]);

impl Loaded {
    /// Returns the state of a CPU after a reset.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 5])
    }

    /// Loads the debug registers of this CPU. `self` must be the state of this CPU. Does nothing if the registers have
    /// these values already.
    pub fn load(&self, registers: &DebugRegisters) {
        let [first, second, third, fourth] = registers.addresses;
        let wanted = [first, second, third, fourth, registers.control];
        let same = |(loaded, wanted): (&AtomicU64, u64)| loaded.load(Ordering::Relaxed) == wanted;
        if self.0.iter().zip(wanted).all(same) {
            return;
        }
        // SAFETY: the personality permits breakpoints at user addresses only, and does not permit the bit of DR7 that
        // makes accesses to debug registers trap. A breakpoint that the kernel hits is ignored.
        unsafe {
            asm!("mov dr7, {}", in(reg) CONTROL_FIXED, options(nostack, preserves_flags));
            asm!("mov dr0, {}", in(reg) first, options(nostack, preserves_flags));
            asm!("mov dr1, {}", in(reg) second, options(nostack, preserves_flags));
            asm!("mov dr2, {}", in(reg) third, options(nostack, preserves_flags));
            asm!("mov dr3, {}", in(reg) fourth, options(nostack, preserves_flags));
            asm!("mov dr7, {}", in(reg) registers.control | CONTROL_FIXED, options(nostack, preserves_flags));
        }
        for (loaded, wanted) in self.0.iter().zip(wanted) {
            loaded.store(wanted, Ordering::Relaxed);
        }
    }
}

/// Returns the bits of DR6 that the last debug exceptions have set, and clears them.
pub fn take_status() -> u64 {
    let value: u64;
    // SAFETY: DR6 only reports past debug exceptions; its value has no effect.
    unsafe {
        asm!("mov {}, dr6", out(reg) value, options(nomem, nostack, preserves_flags));
        asm!("mov dr6, {}", in(reg) STATUS_RESET, options(nomem, nostack, preserves_flags));
    }
    value ^ STATUS_RESET
}
