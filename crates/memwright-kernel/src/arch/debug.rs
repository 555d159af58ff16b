//! The debug registers of this CPU.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memwright_linux_abi::arch::x86_64::{debug::DebugRegisters, regs::RESUME_FLAG};

/// The value of DR6 after a reset.
const STATUS_RESET: u64 = 0xffff_0ff0;
/// The bit of DR7 that is always one.
const CONTROL_FIXED: u64 = 1 << 10;

/// The value of [`Loaded::kept_flags`] while no breakpoint is enabled.
pub const KEPT_WITHOUT_BREAKPOINTS: u32 = !(RESUME_FLAG as u32);

/// The state of the debug registers of a CPU.
pub struct Loaded {
    /// The values last loaded into DR0 to DR3, and DR7.
    values: [AtomicU64; 5],
    /// The flags that an entry from user mode saves: all flags while a breakpoint is enabled, and otherwise all except
    /// RF. A processor sets RF in the flags that a fault saves, but QEMU sets it only in its later versions. A return
    /// with RF set takes the longer path, so a run takes the same path with every version of QEMU only if RF is not
    /// saved. With breakpoints, however, RF must survive an interrupt that arrives before the thread has executed the
    /// instruction at which it stopped. Otherwise the thread would stop there again.
    pub kept_flags: AtomicU32,
}

impl Loaded {
    /// Returns the state of a CPU after a reset.
    pub const fn new() -> Self {
        Self {
            values: [const { AtomicU64::new(0) }; 5],
            kept_flags: AtomicU32::new(KEPT_WITHOUT_BREAKPOINTS),
        }
    }

    /// Loads `registers` into the debug registers of this CPU. `self` must be the state of this CPU. Does nothing if
    /// the debug registers have these values already.
    pub fn load(&self, registers: &DebugRegisters) {
        let [first, second, third, fourth] = registers.addresses;
        let wanted = [first, second, third, fourth, registers.control];
        let same = |(loaded, wanted): (&AtomicU64, u64)| loaded.load(Ordering::Relaxed) == wanted;
        if self.values.iter().zip(wanted).all(same) {
            return;
        }
        // SAFETY: the personality permits only breakpoints at user addresses, and does not permit the bit of DR7 that
        // makes accesses to debug registers trap. The kernel ignores a breakpoint that it hits itself.
        unsafe {
            asm!("mov dr7, {}", in(reg) CONTROL_FIXED, options(nostack, preserves_flags));
            asm!("mov dr0, {}", in(reg) first, options(nostack, preserves_flags));
            asm!("mov dr1, {}", in(reg) second, options(nostack, preserves_flags));
            asm!("mov dr2, {}", in(reg) third, options(nostack, preserves_flags));
            asm!("mov dr3, {}", in(reg) fourth, options(nostack, preserves_flags));
            asm!("mov dr7, {}", in(reg) registers.control | CONTROL_FIXED, options(nostack, preserves_flags));
        }
        for (loaded, wanted) in self.values.iter().zip(wanted) {
            loaded.store(wanted, Ordering::Relaxed);
        }
        let kept = if registers.is_active() {
            u32::MAX
        } else {
            KEPT_WITHOUT_BREAKPOINTS
        };
        self.kept_flags.store(kept, Ordering::Relaxed);
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
