//! The machine virt: entry from OpenSBI, which provides the console, the start of harts and the end of the machine.

use core::arch::{asm, global_asm};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::device_tree::memory;
use crate::{CPUS, MEMORY_BASE, Memory, STACK, STARTED, Trap, example_main, run_second};

// Extensions of the SBI (RISC-V Supervisor Binary Interface Specification).
const PUT_CHARACTER: u64 = 1;
const HART_STATE: u64 = 0x0048_534d;
const FIRMWARE_FEATURES: u64 = 0x4657_4654;
const UPDATE_ACCESSED_AND_DIRTY: u64 = 4;
const SYSTEM_RESET: u64 = 0x5352_5354;

/// The field MODE of satp: Sv48, or Sv39.
pub const PAGING_MODE: u64 = if cfg!(feature = "sv39") { 8 } else { 9 };

global_asm!(
    include_str!("start.s"),
    base = const MEMORY_BASE,
    mode = const PAGING_MODE << 60,
    sv39 = const cfg!(feature = "sv39") as u8,
    stack = const STACK,
    first = sym first,
    second = sym run_second,
    kernel_trap = sym kernel_trap,
    kernel_stack = const offset_of!(Context, kernel_stack),
);

// SAFETY: `start.s` and the linker script define these symbols with these types.
unsafe extern "C" {
    static root: u8;
    static image_end: u8;
    static second_start: u8;
    fn enter_user(context: *mut Context);
}

/// For each CPU, the number of its hart.
static HARTS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];

/// The registers of a program.
#[repr(C)]
pub struct Context {
    /// The program counter, and the registers X1 to X31.
    registers: [u64; 32],
    /// The stack pointer of the kernel while the program runs.
    kernel_stack: u64,
}

const A0: usize = 10;
const A1: usize = 11;

impl Context {
    /// The registers of a program that begins at `start`, with `address` in A0 and `value` in A1.
    #[must_use]
    pub fn new(start: u64, address: u64, value: u64) -> Self {
        let mut registers = [0; 32];
        registers[0] = start;
        (registers[A0], registers[A1]) = (address, value);
        Self {
            registers,
            kernel_stack: 0,
        }
    }

    /// The second register of the program, A1.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.registers[A1]
    }
}

/// Runs the program with these registers in user mode, until its next trap.
///
/// # Panics
/// At a trap that no program of the example takes.
pub fn enter(context: &mut Context) -> Trap {
    // SAFETY: SRET enters user mode, in which the tables permit no access to the memory of the kernel. A trap writes to
    // the context only, which this function borrows, and restores the registers that the calling convention preserves.
    unsafe { enter_user(context) };
    let (cause, address) = cause();
    match cause {
        8 => Trap::Call,
        12 | 13 | 15 => Trap::PageFault {
            address,
            write: cause == 15,
            fetch: cause == 12,
        },
        _ => panic!(
            "cause {cause:#x} in user mode at {:#x}",
            context.registers[0]
        ),
    }
}

/// The cause of the last trap on the calling CPU, and the address to which it applies.
fn cause() -> (u64, u64) {
    let (cause, address);
    // SAFETY: reading these registers has no effect.
    unsafe {
        asm!("csrr {}, scause", "csrr {}, stval", out(reg) cause, out(reg) address, options(nomem, nostack));
    };
    (cause, address)
}

extern "C" fn kernel_trap() -> ! {
    let (cause, address) = cause();
    panic!("cause {cause:#x} in the kernel, address {address:#x}")
}

/// The number of the calling CPU.
#[must_use]
pub fn cpu() -> usize {
    let number;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("mv {}, tp", out(reg) number, options(nomem, nostack, preserves_flags)) };
    number
}

/// The number of the hart of a CPU.
#[must_use]
pub fn hart(cpu: usize) -> u64 {
    HARTS[cpu].load(Ordering::Relaxed)
}

/// The entry of the boot CPU, with the number of its hart, and the physical address of the device tree.
extern "C" fn first(hart: u64, tree: u64) -> ! {
    HARTS[0].store(hart, Ordering::Relaxed);
    HARTS[1].store(1 - hart, Ordering::Relaxed);
    setup(0);
    let image = (&raw const image_end as u64 - MEMORY_BASE).next_multiple_of(4096);
    example_main(&Memory {
        free: image..memory(tree).end & !4095,
        root: &raw const root as u64 - MEMORY_BASE,
    })
}

/// Makes the calling CPU set accessed and dirty bits (Svadu), if the firmware leaves that choice to the kernel.
pub fn setup(_cpu: usize) {
    // SAFETY: the feature makes the page walker set bits in entries, which the tables permit. Firmware without the
    // feature returns an error and changes nothing.
    unsafe { sbi(FIRMWARE_FEATURES, 0, [UPDATE_ACCESSED_AND_DIRTY, 1, 0, 0]) };
}

/// Starts the second CPU. Called once, by the boot CPU.
///
/// # Panics
/// If the firmware refuses.
pub fn start_second() {
    let entry = &raw const second_start as u64 - MEMORY_BASE;
    // SAFETY: the hart begins at the entry, on a stack of its own.
    let error = unsafe { sbi(HART_STATE, 0, [hart(1), entry, 0, 0]) };
    assert!(error == 0, "the second hart does not start: {error}");
    while !STARTED.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
}

/// Calls the firmware. Returns its error code.
///
/// # Safety
/// The function of the extension, with these arguments, writes to no memory that Rust owns.
pub unsafe fn sbi(extension: u64, function: u64, arguments: [u64; 4]) -> i64 {
    let [a, b, c, d] = arguments;
    let error;
    // SAFETY: as the caller guarantees. The firmware preserves all other registers.
    unsafe {
        asm!("ecall", inlateout("a0") a => error, inlateout("a1") b => _, in("a2") c, in("a3") d,
            in("a6") function, in("a7") extension, options(nostack));
    }
    error
}

/// Sends a byte to the console of the firmware.
pub fn put(byte: u8) {
    // SAFETY: the function reads and writes no memory.
    unsafe { sbi(PUT_CHARACTER, 0, [byte.into(), 0, 0, 0]) };
}

/// Ends QEMU. On success, the firmware does so, with exit code 0. Otherwise, the machine's test device does, because
/// not every version of the firmware reports a failure to QEMU.
pub fn end(success: bool) {
    if success {
        // SAFETY: a shutdown without a reason. It does not return.
        unsafe { sbi(SYSTEM_RESET, 0, [0; 4]) };
    }
    // SAFETY: the register is mapped. The value ends QEMU with exit code 1.
    unsafe { ((MEMORY_BASE + 0x10_0000) as *mut u32).write_volatile(1 << 16 | 0x3333) };
}
