//! Exceptions and interrupts in the kernel itself.
//!
//! Interrupts occur only while a CPU idles, halts in a wait, waits for input or is stopped. Page faults on user
//! addresses occur only in the user-copy routines. Any other exception is a kernel bug and ends the run with a report.

use memwright_linux::host::InterruptKind;

use crate::arch;
use crate::clock;
use crate::control;
use crate::paging::USER_LIMIT;
use crate::panic;
use crate::percpu;
use crate::report;
use crate::trace::Kind;
use crate::trap::idt::vector;
use crate::{apic, ipi, usercopy};

/// Registers at a trap, as `trap_save` and the processor push them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TrapFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub flags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// Error code of a page fault: the access was a write.
pub const FAULT_WRITE: u64 = 1 << 1;
/// Error code of a page fault: an entry was present.
pub const FAULT_PRESENT: u64 = 1;
/// Error code of a page fault: an entry had a reserved bit set.
pub const FAULT_RESERVED: u64 = 1 << 3;
/// Error code of a page fault: an instruction fetch.
pub const FAULT_FETCH: u64 = 1 << 4;
/// Error code of a page fault: the page's protection key denies the access.
pub const FAULT_KEY: u64 = 1 << 5;

/// Called by the entry of [`vector::INVALIDATE`] if the interrupt was taken in user mode.
#[unsafe(no_mangle)]
extern "C" fn kernel_invalidate() {
    ipi::asked_to_forget(percpu::current());
}

/// Handles the exceptions and interrupts that the entries receive in the kernel.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(frame: &mut TrapFrame) {
    let cpu = percpu::current();
    let number = frame.vector as u8;
    match number {
        vector::TIMER => {
            apic::acknowledge();
            cpu.count(InterruptKind::Timer);
            if clock::timer_fired(cpu) {
                cpu.miss(ipi::MISSED_RESCHEDULE);
            }
        }
        vector::CONTROL => {
            control::receive();
            apic::acknowledge();
            cpu.miss(ipi::MISSED_CONTROL);
        }
        vector::RESCHEDULE => {
            ipi::taken(cpu, number);
            cpu.miss(ipi::MISSED_RESCHEDULE);
        }
        vector::INVALIDATE | vector::HOLD | vector::WAKE => {
            ipi::taken(cpu, number);
        }
        // This interrupt only ends the HLT of a CPU that waits for input.
        vector::INPUT => apic::acknowledge(),
        // A debug exception deferred over SYSCALL arrives in the kernel, where it is ignored.
        vector::SPURIOUS | vector::DEBUG => {}
        vector::NMI => report::requested(frame),
        vector::PAGE_FAULT => {
            let address = arch::fault_address();
            cpu.ring
                .record(Kind::KernelTrap, u64::from(number), address, arch::ticks());
            let user = address < USER_LIMIT && frame.error & (FAULT_FETCH | FAULT_RESERVED) == 0;
            match usercopy::fixup(frame.rip) {
                Some(resume) if user => {
                    let refused = frame.error & FAULT_KEY != 0;
                    if refused || !usercopy::resolve(address, frame.error & FAULT_WRITE != 0) {
                        frame.rip = resume;
                    }
                }
                _ => match usercopy::attempt_fixup(frame.rip) {
                    Some(resume) if user => frame.rip = resume,
                    _ => panic::exception(frame, address),
                },
            }
        }
        _ => panic::exception(frame, arch::fault_address()),
    }
}
