//! Exceptions and interrupts that occur in the kernel itself.
//!
//! Interrupts occur only while a CPU idles, halts in a wait, waits for input or is stopped. Page faults on user
//! addresses occur only in the user-copy routines. An NMI requests a report, and a debug exception is ignored. Any
//! other exception is a kernel bug, which ends the run with a report, unless a self-test provoked the exception.

use core::fmt::{self, Write};

use memwright_linux_abi::host::InterruptKind;

use crate::arch::{self, debug, vector};
use crate::memory::paging::USER_LIMIT;
use crate::report::console::Text;
use crate::report::{self, DEEPEST, exception_name, frames, panic, registers};
use crate::trace::Kind;
use crate::trap::catch;
use crate::trap::frame::{
    FAULT_FETCH, FAULT_KEY, FAULT_PRESENT, FAULT_RESERVED, FAULT_WRITE, TrapFrame,
};
use crate::{apic, clock, context, control, ipi, percpu, usercopy};

/// Handles an interrupt of [`vector::INVALIDATE`] that arrived in user mode. The entry of that vector calls this
/// function.
#[unsafe(no_mangle)]
extern "C" fn kernel_invalidate() {
    ipi::asked_to_forget(percpu::current());
}

/// Handles the exceptions and interrupts that occur in the kernel.
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
        // This interrupt only serves to end the HLT of a CPU that waits for input.
        vector::INPUT => apic::acknowledge(),
        vector::SPURIOUS => {}
        // Ignore debug exceptions in the kernel. The processor deferred the exception past SYSCALL, or the kernel
        // accessed memory at which a program has set a breakpoint.
        vector::DEBUG => {
            debug::take_status();
        }
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
                    _ => unexpected(frame, address),
                },
            }
        }
        _ => unexpected(frame, arch::fault_address()),
    }
}

/// Handles an unexpected exception in the kernel. Ends the run, unless a self-test provoked the exception.
fn unexpected(frame: &mut TrapFrame, address: u64) {
    if catch::caught(frame, address) {
        return;
    }
    let mut text = panic::begin();
    let _ = describe(&mut text, frame, address);
    let _ = registers(&mut text, frame, address);
    let _ = writeln!(text, "backtrace:\n  at {:#x}", frame.rip);
    let _ = frames(&mut text, frame.rbp, DEEPEST);
    panic::finish(text)
}

/// Writes one line that describes an exception.
fn describe(text: &mut Text, frame: &TrapFrame, address: u64) -> fmt::Result {
    let number = frame.vector as u8;
    let overflow = matches!(number, vector::PAGE_FAULT | vector::DOUBLE_FAULT)
        && (context::is_guard(address) || context::is_guard(frame.rsp.wrapping_sub(8)));
    if overflow {
        return writeln!(
            text,
            "Memwright's kernel overflowed its stack: {address:#x} is a guard page"
        );
    }
    if number != vector::PAGE_FAULT {
        let name = exception_name(number);
        let error = frame.error;
        return writeln!(
            text,
            "Memwright's kernel met an exception: {name} ({number}), error {error:#x}"
        );
    }
    let access = if frame.error & FAULT_FETCH != 0 {
        "execute"
    } else if frame.error & FAULT_WRITE != 0 {
        "write"
    } else {
        "read"
    };
    let why = match (frame.error & FAULT_PRESENT != 0, address < USER_LIMIT) {
        (true, true) => "user memory outside of a user copy (SMAP, SMEP)",
        (true, false) => "its protection forbids it",
        (false, _) => "nothing is mapped there",
    };
    writeln!(
        text,
        "Memwright's kernel could not {access} {address:#x}: {why}"
    )
}
