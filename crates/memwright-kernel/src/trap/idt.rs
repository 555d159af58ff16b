//! The interrupt descriptor table: one gate per vector. The gates differ only in their stubs and stacks.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::vector;
use crate::percpu::{InterruptStack, KERNEL_CODE};

/// The 256 gates, of two words each. All CPUs share the table.
#[repr(C, align(16))]
struct Table([[AtomicU64; 2]; 256]);

static TABLE: Table = Table([const { [const { AtomicU64::new(0) }; 2] }; 256]);

/// The type of an interrupt gate that is present. Such a gate clears the interrupt flag.
const GATE: u64 = 0x8e00;
/// The bits of a gate that permit user mode to execute INT n.
const FROM_USER: u64 = 3 << 13;

unsafe extern "C" {
    /// Entry stubs of [`STUB_SIZE`] bytes each, in the order of their vectors.
    static trap_stubs: u8;
}

/// Size of an entry stub in bytes.
pub const STUB_SIZE: u64 = 16;

/// Fills the table. Called once, before any CPU loads it.
pub fn fill() {
    for (index, gate) in (0u8..=255).zip(&TABLE.0) {
        let handler = &raw const trap_stubs as u64 + u64::from(index) * STUB_SIZE;
        let stack = match index {
            vector::DOUBLE_FAULT => Some(InterruptStack::DoubleFault),
            vector::NMI => Some(InterruptStack::Nmi),
            vector::MACHINE_CHECK => Some(InterruptStack::MachineCheck),
            vector::DEBUG => Some(InterruptStack::Debug),
            _ => None,
        };
        let stack = stack.map_or(0, |stack| stack as u64 + 1);
        let rights = match index {
            vector::BREAKPOINT | vector::OVERFLOW => GATE | FROM_USER,
            _ => GATE,
        };
        let low = handler & 0xffff
            | u64::from(KERNEL_CODE) << 16
            | stack << 32
            | rights << 32
            | (handler >> 16 & 0xffff) << 48;
        gate[0].store(low, Ordering::Relaxed);
        gate[1].store(handler >> 32, Ordering::Relaxed);
    }
}

/// Loads the table on this CPU.
///
/// # Safety
/// The table is filled, and this CPU's GS base, task state and stacks are set.
pub unsafe fn load() {
    #[repr(C, packed)]
    struct Pointer {
        limit: u16,
        base: u64,
    }
    let pointer = Pointer {
        limit: (size_of::<Table>() - 1) as u16,
        base: &raw const TABLE as u64,
    };
    // SAFETY: the descriptor refers to a static table of that size, filled as the caller guarantees.
    unsafe {
        asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags));
    };
}
