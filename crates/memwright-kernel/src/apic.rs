//! Local APICs, their timers, inter-processor interrupts, and the two inputs of the I/O APIC that are used.
//!
//! Registers are accessed in memory, or as model-specific registers if the processor has x2APIC (under TCG: QEMU 9 and
//! later). Callers of [`write()`] and [`send_command`] need not distinguish the two. QEMU's timer counts nanoseconds of
//! the virtual clock; TCG has no TSC deadline mode.

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering, fence};

use crate::arch::{self, msr, vector};
use crate::memory::paging::{IO_APIC, LOCAL_APIC};
use crate::percpu;

const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_TARGET: u64 = 0x310;
const TIMER_ENTRY: u64 = 0x320;
const NMI_ENTRY: u64 = 0x360;
const TIMER_COUNT: u64 = 0x380;
const TIMER_LEFT: u64 = 0x390;
const TIMER_DIVISOR: u64 = 0x3e0;

/// In the spurious-vector register: enables the local APIC.
const ENABLE: u32 = 1 << 8;
/// In the divide register: the timer counts at the full rate.
const DIVIDE_BY_ONE: u32 = 0b1011;
/// In the base register: enables the local APIC globally.
const GLOBAL_ENABLE: u64 = 1 << 11;
/// In the base register: enables x2APIC mode.
const X2APIC: u64 = 1 << 10;

/// In a command, and in the local input that the monitor command `inject-nmi` asserts: the delivery mode NMI.
const NMI: u32 = 4 << 8;
const INIT: u32 = 5 << 8;
const STARTUP: u32 = 6 << 8;
/// In a command: the level bit, "assert". Every command must set it, except the obsolete INIT level de-assert.
const ASSERT: u32 = 1 << 14;
/// In a command: the delivery status, which states that the command is still pending.
const PENDING: u32 = 1 << 12;

/// Whether the registers are accessed as model-specific registers.
static BY_MSR: AtomicBool = AtomicBool::new(false);

/// The I/O APIC inputs of the second and the first serial port: ISA lines 3 and 4.
const CONTROL_LINE: u32 = 3;
const INPUT_LINE: u32 = 4;
const INPUTS: u32 = 24;
const MASKED: u32 = 1 << 16;

#[inline(always)]
fn write(register: u64, value: u32) {
    // SAFETY: `paging` maps the registers before interrupts are set up, or x2APIC mode is on; each write
    // below is one that the architecture permits.
    unsafe {
        if BY_MSR.load(Ordering::Relaxed) {
            arch::write_msr(msr::X2APIC + (register >> 4) as u32, u64::from(value));
        } else {
            ptr::write_volatile((LOCAL_APIC + register) as *mut u32, value);
        }
    }
}

/// Reads a register in memory. Must not be used in x2APIC mode: while QEMU counts instructions, it does not permit
/// RDMSR of the timer.
fn read(register: u64) -> u32 {
    // SAFETY: the argument of `write` applies; x2APIC mode is off, and the registers read below are readable.
    unsafe { ptr::read_volatile((LOCAL_APIC + register) as *const u32) }
}

/// Sends `command` to the APIC with the ID `target`. When the target handles the command, it sees all earlier stores of
/// this CPU.
fn send_command(target: u32, command: u32) {
    if BY_MSR.load(Ordering::Relaxed) {
        // Unlike a write to uncached memory, WRMSR to an x2APIC register does not wait for earlier stores.
        fence(Ordering::SeqCst);
        let value = u64::from(target) << 32 | u64::from(command);
        // SAFETY: x2APIC mode is on; `command` is one of the commands that the functions below send.
        unsafe { arch::write_msr(msr::X2APIC + (COMMAND >> 4) as u32, value) };
        return;
    }
    write(COMMAND_TARGET, target << 24);
    write(COMMAND, command);
    while read(COMMAND) & PENDING != 0 {
        arch::pause();
    }
}

/// Sends the interrupt vector `number` to the CPU whose APIC has the id `target`.
pub fn send(target: u32, number: u8) {
    send_command(target, ASSERT | u32::from(number));
}

/// Sends an NMI to the CPU whose APIC has the id `target`. The NMI arrives even if interrupts are disabled.
pub fn send_nmi(target: u32) {
    send_command(target, ASSERT | NMI);
}

/// Sends INIT to the CPU whose APIC has the id `target`. INIT resets the CPU before it is started.
pub fn send_init(target: u32) {
    send_command(target, ASSERT | INIT);
}

/// Sends a startup command to the CPU whose APIC has the id `target`. The CPU starts in real mode at the beginning of
/// the page with the number `page`.
pub fn send_startup(target: u32, page: u8) {
    send_command(target, ASSERT | STARTUP | u32::from(page));
}

fn route(input: u32, cpu: usize, low: u32) {
    let select = IO_APIC as *mut u32;
    let window = (IO_APIC + 0x10) as *mut u32;
    // SAFETY: `paging` maps the I/O APIC's index and data registers. One processor at a time programs them, with
    // interrupts disabled: the boot processor, and later a processor that has stopped the other CPUs.
    unsafe {
        ptr::write_volatile(select, 0x11 + 2 * input);
        ptr::write_volatile(window, percpu::apic_id(cpu) << 24);
        ptr::write_volatile(select, 0x10 + 2 * input);
        ptr::write_volatile(window, low);
    }
}

/// Routes the interrupts of standard input to CPU `index`, which halts until bytes arrive. The other CPUs must be
/// stopped or not yet running.
pub fn route_input(index: usize) {
    route(INPUT_LINE, index, u32::from(vector::INPUT));
}

/// Masks the legacy interrupt controllers, stops the interval timer, routes the serial ports to this CPU, and sets the
/// rate of this CPU's APIC timer. Afterwards the caller reads the APIC timer to calibrate the clock, and enables the
/// APIC by [`start_first_cpu`].
pub fn start() {
    // The interval timer runs from reset on. Under the pinned clock, each of its expirations is an event of the virtual
    // machine, and these events would keep an idle machine busy. So set the interval timer to expire only once more,
    // after one count. SAFETY: the writes initialise both 8259s in the standard sequence, mask all their inputs, and
    // set channel 0 of the interval timer to mode 0. The timer's interrupt is masked.
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
        let base = arch::read_msr(msr::APIC_BASE) | GLOBAL_ENABLE;
        arch::write_msr(msr::APIC_BASE, base);
    }
    for input in 0..INPUTS {
        route(input, 0, MASKED);
    }
    route(CONTROL_LINE, 0, u32::from(vector::CONTROL));
    route_input(0);
    write(TIMER_DIVISOR, DIVIDE_BY_ONE);
}

/// Enables the APIC of the first CPU like [`start_cpu`]. If the processor has x2APIC mode, registers are accessed as
/// model-specific registers from now on.
pub fn start_first_cpu() {
    BY_MSR.store(arch::has_x2apic(), Ordering::Relaxed);
    start_cpu();
}

/// Enables this CPU's APIC, its timer, and NMIs from the machine's NMI line.
pub fn start_cpu() {
    let mode = if BY_MSR.load(Ordering::Relaxed) {
        X2APIC | GLOBAL_ENABLE
    } else {
        GLOBAL_ENABLE
    };
    // SAFETY: the register exists, and the processor has the mode that `mode` enables.
    unsafe { arch::write_msr(msr::APIC_BASE, arch::read_msr(msr::APIC_BASE) | mode) };
    write(SPURIOUS, ENABLE | u32::from(vector::SPURIOUS));
    write(TIMER_DIVISOR, DIVIDE_BY_ONE);
    write(TIMER_ENTRY, u32::from(vector::TIMER));
    write(NMI_ENTRY, NMI);
}

/// Acknowledges the interrupt in service.
#[inline(always)]
pub fn acknowledge() {
    write(END_OF_INTERRUPT, 0);
}

/// Sets the timer to fire once after `ticks`; 0 stops it.
#[inline(always)]
pub fn set_timer(ticks: u32) {
    write(TIMER_COUNT, ticks);
}

/// Returns the ticks left until the timer fires. Must not be used in x2APIC mode.
pub fn timer_left() -> u32 {
    read(TIMER_LEFT)
}
