//! The local APIC's timer and the I/O APIC's one line: interrupts of one CPU.
//!
//! Registers by memory: QEMU 7.2 has no x2APIC under TCG. The timer counts nanoseconds of the virtual
//! clock, which is QEMU's rate; there is no TSC deadline under TCG.

use core::ptr;

use crate::arch::{self, msr};
use crate::paging::{IO_APIC, LOCAL_APIC};
use crate::trap::idt::vector;

const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const TIMER_ENTRY: u64 = 0x320;
const TIMER_COUNT: u64 = 0x380;
const TIMER_DIVISOR: u64 = 0x3e0;

/// Software enable, in the spurious vector's register.
const ENABLE: u32 = 1 << 8;
/// Divide by one.
const DIVIDE_BY_ONE: u32 = 0b1011;
/// Global enable, in the base register.
const GLOBAL_ENABLE: u64 = 1 << 11;

/// The I/O APIC's inputs of the second and the first serial port: ISA lines 3 and 4.
const CONTROL_LINE: u32 = 3;
const INPUT_LINE: u32 = 4;
const INPUTS: u32 = 24;
const MASKED: u32 = 1 << 16;

#[inline(always)]
fn write(register: u64, value: u32) {
    // SAFETY: `paging` maps the registers there before interrupts are set up; each write below is
    // one that the architecture permits.
    unsafe { ptr::write_volatile((LOCAL_APIC + register) as *mut u32, value) };
}

fn route(input: u32, low: u32) {
    let select = IO_APIC as *mut u32;
    let window = (IO_APIC + 0x10) as *mut u32;
    // SAFETY: the I/O APIC's index and data registers, mapped by `paging`; the boot processor alone
    // programs them, with interrupts disabled.
    unsafe {
        ptr::write_volatile(select, 0x11 + 2 * input);
        ptr::write_volatile(window, 0); // to the CPU whose APIC number is 0
        ptr::write_volatile(select, 0x10 + 2 * input);
        ptr::write_volatile(window, low);
    }
}

/// Masks the legacy controllers, stops the interval timer, routes the control line, and enables this CPU's APIC and timer.
pub fn start() {
    // The interval timer runs from reset on. Under the pinned clock every tick of it is an event of the
    // virtual machine, and keeps an idle one busy: it gets a last short count, once.
    // SAFETY: the standard initialisation of both 8259s, then everything masked; then the interval
    // timer's channel 0 in mode 0, whose interrupt is masked.
    unsafe {
        for (port, value) in [
            (0x20, 0x11),
            (0xa0, 0x11),
            (0x21, vector::LEGACY),
            (0xa1, vector::LEGACY + 8),
            (0x21, 4),
            (0xa1, 2),
            (0x21, 1),
            (0xa1, 1),
            (0x21, 0xff),
            (0xa1, 0xff),
            (0x43, 0x30),
            (0x40, 1),
            (0x40, 0),
        ] {
            arch::write_port(port, value);
        }
        arch::write_msr(
            msr::APIC_BASE,
            arch::read_msr(msr::APIC_BASE) | GLOBAL_ENABLE,
        );
    }
    for input in 0..INPUTS {
        route(input, MASKED);
    }
    route(CONTROL_LINE, u32::from(vector::CONTROL));
    route(INPUT_LINE, u32::from(vector::INPUT));
    write(SPURIOUS, ENABLE | u32::from(vector::SPURIOUS));
    write(TIMER_DIVISOR, DIVIDE_BY_ONE);
    write(TIMER_ENTRY, u32::from(vector::TIMER));
}

/// Acknowledges the interrupt in service.
#[inline(always)]
pub fn acknowledge() {
    write(END_OF_INTERRUPT, 0);
}

/// Makes the timer fire once after `ticks`; 0 stops it.
#[inline(always)]
pub fn set_timer(ticks: u32) {
    write(TIMER_COUNT, ticks);
}
