//! Starts the secondary CPUs. Sends INIT to all of them. Then sends two startup interrupts to each of them, one CPU
//! after another (Intel SDM volume 3A, the protocol of MP initialisation).

use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memwright_linux::account::refuse;
use memwright_linux_abi::host::ContextId;

use crate::machine::HARDWARE;
use crate::memory::paging::{self, DIRECT_BASE};
use crate::percpu::{self, PerCpu};
use crate::{apic, arch, clock, context, ipi};

/// The physical address of the page in which secondary CPUs start. A startup interrupt can only address pages below 1
/// MiB, and this page has no other use. The page need not be mapped executable, because a CPU leaves it before it
/// enables paging.
pub const TRAMPOLINE: u64 = 0x8000;

/// The values for the CPU that is being started: the root table, the stack pointer, and the address of its [`PerCpu`].
pub static START: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// The time in nanoseconds from INIT to the first startup interrupt, and the time from the first to the second startup
/// interrupt.
const AFTER_INIT: u64 = 10_000_000;
const AFTER_STARTUP: u64 = 200_000;
/// The time in nanoseconds after which a CPU that has not answered is considered missing.
const PATIENCE: u64 = 1_000_000_000;

/// Whether started CPUs run the self-tests instead of the personality's idle loop.
static SELF_TEST: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    static secondary_trampoline: u8;
    static secondary_trampoline_end: u8;
}

/// Starts every other CPU, each of which then calls the personality. Called once, on the boot processor. Powers the
/// machine off if there is no memory for a CPU's structures.
///
/// # Panics
/// If a CPU does not start.
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

/// Starts every other CPU like [`start_all`], but for the self-tests. These CPUs do not call the personality.
pub fn start_all_for_tests() {
    SELF_TEST.store(true, Ordering::Relaxed);
    start_all();
}

/// Returns whether the other CPUs were started by [`start_all_for_tests`].
pub fn is_for_tests() -> bool {
    SELF_TEST.load(Ordering::Relaxed)
}

fn fill_trampoline() {
    let from = &raw const secondary_trampoline;
    let length = &raw const secondary_trampoline_end as usize - from as usize;
    // SAFETY: the symbols delimit the code in the image. The page is usable memory, which the direct map covers, and
    // has no other use.
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

/// Halts this CPU for `time` nanoseconds. Afterwards restores the CPU's deadline.
fn sleep(time: u64) {
    let end = clock::now() + time;
    let before = clock::deadline();
    clock::set_deadline(Some(end));
    while clock::now() < end {
        arch::wait_for_interrupt();
    }
    clock::set_deadline(before);
}

/// Waits for at most `time` nanoseconds until `condition` holds. Returns whether it holds.
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

/// Returns the idle context of this CPU.
pub fn idle_context() -> ContextId {
    ContextId(percpu::current().idle_context.load(Ordering::Relaxed))
}
