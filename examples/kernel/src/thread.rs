//! The thread that runs the test kit: it continues on the CPU that it names, so that the library and the accesses of
//! that CPU's programs really run there.

use alloc::vec::Vec;
#[cfg(not(target_arch = "x86_64"))]
use core::arch::asm;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use memwright_example_boot::{self as boot, CPUS};
#[cfg(target_arch = "x86_64")]
use memwright_table::sync::Threads;

#[cfg(target_arch = "x86_64")]
use crate::Hardware;

// fn switch_stack(from: &AtomicU64, to: u64): pushes the registers that a call preserves on the current stack, and
// saves the stack pointer in `from`. Continues on the stack `to`, where that stack was left. The register with the
// number of the CPU does not change.
#[cfg(target_arch = "x86_64")]
global_asm!(
    "switch_stack:",
    ".irp register, rbx, rbp, r12, r13, r14, r15",
    "   push \\register",
    ".endr",
    "   mov [rdi], rsp",
    "   mov rsp, rsi",
    ".irp register, r15, r14, r13, r12, rbp, rbx",
    "   pop \\register",
    ".endr",
    "   ret",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    "switch_stack:",
    "   sub sp, sp, 96",
    ".irp register, 19,20,21,22,23,24,25,26,27,28,29,30",
    "   str x\\register, [sp, 8 * (\\register - 19)]",
    ".endr",
    "   mov x2, sp",
    "   str x2, [x0]",
    "   mov sp, x1",
    ".irp register, 19,20,21,22,23,24,25,26,27,28,29,30",
    "   ldr x\\register, [sp, 8 * (\\register - 19)]",
    ".endr",
    "   add sp, sp, 96",
    "   ret",
);

#[cfg(target_arch = "riscv64")]
global_asm!(
    "switch_stack:",
    "   addi sp, sp, -224",
    ".irp register, 1,8,9,18,19,20,21,22,23,24,25,26,27",
    "   sd x\\register, 8 * \\register(sp)",
    ".endr",
    "   sd sp, 0(a0)",
    "   mv sp, a1",
    ".irp register, 1,8,9,18,19,20,21,22,23,24,25,26,27",
    "   ld x\\register, 8 * \\register(sp)",
    ".endr",
    "   addi sp, sp, 224",
    "   ret",
);

// SAFETY: the assembly above defines the function with this type.
unsafe extern "C" {
    fn switch_stack(from: &AtomicU64, to: u64);
}

/// The number of words that `switch_stack` leaves on a stack, and the index of the word with the address at which the
/// stack continues.
const LEFT: (usize, usize) = if cfg!(target_arch = "x86_64") {
    (8, 6)
} else if cfg!(target_arch = "aarch64") {
    (12, 11)
} else {
    (28, 1)
};

/// The number of words of the stack that the first CPU uses while the thread is on another CPU.
const STACK: usize = 2048;

/// The stack pointer of the thread while no CPU runs it.
static THREAD: AtomicU64 = AtomicU64::new(0);
/// For each CPU that runs the thread, the stack pointer of its `serve`.
static SERVERS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];
/// The CPU that runs the thread.
static TURN: AtomicUsize = AtomicUsize::new(0);
/// The CPU to which the thread moves.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Makes the caller, on the first CPU, the thread that [`move_to`] moves.
pub fn begin() {
    let stack = Vec::leak(alloc::vec![0_u64; STACK]);
    let (words, address) = LEFT;
    let left = STACK - words;
    stack[left + address] = leave_first as *const () as u64;
    let pointer = &raw const stack[left] as u64;
    SERVERS[0].store(pointer, Ordering::Relaxed);
}

/// Moves the thread that calls this function to the CPU with the number `cpu`.
pub fn move_to(cpu: usize) {
    let here = boot::cpu();
    if cpu == here {
        return;
    }
    NEXT.store(cpu, Ordering::Relaxed);
    // SAFETY: the stack is that of `serve` on this CPU. Either this function left it, or `begin` prepared it in the
    // same form.
    unsafe { switch_stack(&THREAD, SERVERS[here].load(Ordering::Relaxed)) };
}

/// The first code that runs on the second stack of the first CPU.
extern "C" fn leave_first() -> ! {
    give_turn();
    serve()
}

/// Runs the thread on the calling CPU whenever it moves there. While the thread is elsewhere, serves the requests of
/// the other CPU.
pub fn serve() -> ! {
    let cpu = boot::cpu();
    loop {
        while TURN.load(Ordering::Acquire) != cpu {
            wait();
        }
        // SAFETY: the thread has left its stack, and no other CPU has the turn.
        unsafe { switch_stack(&SERVERS[cpu], THREAD.load(Ordering::Relaxed)) };
        give_turn();
    }
}

/// Lets the CPU to which the thread moves run it.
fn give_turn() {
    let next = NEXT.load(Ordering::Relaxed);
    TURN.store(next, Ordering::Release);
    wake(next);
}

/// Waits for a moment. Serves the requests of the other CPU.
#[cfg(target_arch = "x86_64")]
fn wait() {
    Hardware::relax();
}

#[cfg(target_arch = "x86_64")]
fn wake(_: usize) {}

/// Waits for an event.
#[cfg(target_arch = "aarch64")]
fn wait() {
    // SAFETY: the instruction only waits.
    unsafe { asm!("wfe", options(nostack, preserves_flags)) };
}

/// Sends an event to all CPUs, after the store before it.
#[cfg(target_arch = "aarch64")]
fn wake(_: usize) {
    // SAFETY: a barrier, and an event.
    unsafe { asm!("dsb ishst", "sev", options(nostack, preserves_flags)) };
}

/// Waits for a software interrupt. Software interrupts are enabled only during the wait.
#[cfg(target_arch = "riscv64")]
fn wait() {
    // SAFETY: the kernel runs with interrupts disabled, so the interrupt only ends the wait.
    unsafe {
        asm!(
            "csrsi sie, 2",
            "wfi",
            "csrci sie, 2",
            "csrci sip, 2",
            options(nostack)
        );
    };
}

/// Sends a software interrupt to a CPU (the extension of the SBI for interrupts).
#[cfg(target_arch = "riscv64")]
fn wake(cpu: usize) {
    // SAFETY: an interrupt writes to no memory.
    unsafe { boot::sbi(0x73_5049, 0, [1 << boot::hart(cpu), 0, 0, 0]) };
}
