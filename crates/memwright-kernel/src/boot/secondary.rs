//! How the boot processor starts the other CPUs: INIT and two startup interrupts each (Intel SDM
//! volume 3A, the protocol of MP initialisation), one CPU after another.

use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memwright_linux::account::refuse;
use memwright_linux::host::ContextId;

use super::setup_processor;
use crate::machine::HARDWARE;
use crate::paging::{self, DIRECT_BASE};
use crate::percpu::{self, PerCpu};
use crate::trap::idt;
use crate::{apic, arch, clock, context, ipi, usercopy};

/// Physical address of the page that the others start in: below 1 MiB, where startup interrupts lead,
/// in memory that nobody else is given. It is never mapped executable: the CPU leaves it before
/// it turns paging on.
pub const TRAMPOLINE: u64 = 0x8000;

/// What the CPU that is being started reads: the root, the stack pointer, and its [`PerCpu`].
pub static START: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Nanoseconds between INIT and the first startup interrupt, and between the two.
const AFTER_INIT: u64 = 10_000_000;
const AFTER_STARTUP: u64 = 200_000;
/// Nanoseconds after which a CPU that is not there will not come.
const PATIENCE: u64 = 1_000_000_000;

/// What the started CPUs run once they are set up; false: the personality's idle loop.
static SELF_TEST: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    static secondary_trampoline: u8;
    static secondary_trampoline_end: u8;
}

/// Starts every other CPU; they call the personality. Called once, on the boot processor.
///
/// # Panics
/// If a CPU does not come. Without memory for a CPU's structures the run ends.
pub fn start_all() {
    let count = percpu::count();
    if count == 1 {
        return;
    }
    fill_trampoline();
    let others = 1..count;
    for index in others.clone() {
        apic::send_init(percpu::apic_id(index));
    }
    sleep(AFTER_INIT);
    for index in others {
        start(index);
    }
}

/// As [`start_all`], for the self-tests: the CPUs serve interrupts and nothing else.
pub fn start_all_for_tests() {
    SELF_TEST.store(true, Ordering::Relaxed);
    start_all();
}

fn fill_trampoline() {
    let from = &raw const secondary_trampoline;
    let length = &raw const secondary_trampoline_end as usize - from as usize;
    // SAFETY: the symbols bound the code in the image; the page is usable memory, which the direct map has,
    // that was never given to anyone.
    unsafe {
        let code = slice::from_raw_parts(from, length);
        ptr::copy_nonoverlapping(
            code.as_ptr(),
            (DIRECT_BASE + TRAMPOLINE) as *mut u8,
            code.len(),
        );
    }
}

fn start(index: usize) {
    let Some(cpu) = PerCpu::create(index) else {
        refuse(&HARDWARE, "no memory for so many CPUs");
    };
    let Ok(idle) = context::create_idle() else {
        refuse(&HARDWARE, "no memory for the stacks of so many CPUs");
    };
    cpu.idle_context.store(idle.0, Ordering::Relaxed);
    START[0].store(paging::template(), Ordering::Relaxed);
    START[1].store(context::stack_top(idle), Ordering::Relaxed);
    START[2].store(&raw const *cpu as u64, Ordering::Release);
    for _ in 0..2 {
        apic::send_startup(percpu::apic_id(index), (TRAMPOLINE / 4096) as u8);
        if wait_until(AFTER_STARTUP, || percpu::is_online(index)) {
            return;
        }
    }
    assert!(
        wait_until(PATIENCE, || percpu::is_online(index)),
        "CPU {index} does not start"
    );
}

/// Halts for so many nanoseconds.
fn sleep(time: u64) {
    let end = clock::now() + time;
    let before = clock::deadline();
    clock::set_deadline(Some(end));
    while clock::now() < end {
        arch::wait_for_interrupt();
    }
    clock::set_deadline(before);
}

/// Waits for `condition`, at most so many nanoseconds. Returns whether it came.
fn wait_until(time: u64, condition: impl Fn() -> bool) -> bool {
    let end = clock::now() + time;
    while !condition() {
        if clock::now() >= end {
            return false;
        }
        ipi::relax();
    }
    true
}

/// Rust's first function on another CPU, on its idle stack and the kernel's tables.
#[unsafe(no_mangle)]
extern "C" fn secondary_main(cpu: *const PerCpu) -> ! {
    // SAFETY: `start` made the structure, for this CPU alone, and never frees it.
    let cpu: &'static PerCpu = unsafe { &*cpu };
    // SAFETY: this CPU runs this once, with interrupts disabled; the table was filled by the first CPU.
    unsafe {
        cpu.setup();
        idt::load();
    }
    setup_processor();
    apic::start_cpu();
    // What comes before is nobody's work.
    percpu::add(&cpu.idle_ticks, clock::ticks());
    percpu::set_online(cpu);
    if SELF_TEST.load(Ordering::Relaxed) {
        crate::selftest::secondary()
    }
    match usercopy::events() {
        Some(events) => events.cpu_start(),
        None => arch::halt_forever(),
    }
}

/// The idle context of this CPU.
pub fn idle_context() -> ContextId {
    ContextId(percpu::current().idle_context.load(Ordering::Relaxed))
}
