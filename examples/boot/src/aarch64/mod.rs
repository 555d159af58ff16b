//! The machine virt: entry in EL1, a serial port, the start of CPUs by PSCI, and the end of the machine by semihosting.

use core::arch::{asm, global_asm};
use core::sync::atomic::Ordering;

use crate::device_tree::memory;
use crate::{MEMORY_BASE, Memory, STACK, STARTED, Trap, example_main, run_second};

/// The physical address at which QEMU puts the device tree: the beginning of memory.
const TREE: u64 = 1 << 30;

/// The memory up to this physical address is mapped.
const END: u64 = 2 << 30;

/// The registers of the serial port, a PL011.
const SERIAL: u64 = MEMORY_BASE + 0x900_0000;

/// The function of PSCI (Arm Power State Coordination Interface) that starts a CPU.
const CPU_ON: u64 = 0xc400_0003;

// Semihosting (Semihosting for AArch32 and AArch64): the operation that ends the machine, and the reason that it
// passes.
const SYS_EXIT: u64 = 0x18;
const APPLICATION_EXIT: u64 = 0x2_0026;

/// Write-back memory, non-cacheable memory, and device memory (nGnRE), in this order.
const MAIR: u64 = 0x04_44ff;

// For each of TTBR0_EL1 and TTBR1_EL1: addresses have 48 bits, the tables are in write-back memory that all CPUs share,
// and pages have 4 KiB.
const LOW: u64 = 16 | 0b01 << 8 | 0b01 << 10 | 0b11 << 12;
const HIGH: u64 = LOW << 16 | 0b10 << 30;
/// HA and HD: the processor sets the access flag, and records stores.
const RECORD: u64 = 0b11 << 39;

/// Paging and caches are on. `0x30d0_0800` has the bits that the first version of the architecture reserves as 1.
const SCTLR: u64 = 0x30d0_0800 | 1 << 12 | 1 << 2 | 1;

// Blocks of 1 GiB: valid, accessed, not executable in user mode. The first constant is for device memory, which the
// kernel cannot execute either.
const DEVICE: u64 = 0b11 << 53 | 1 << 10 | 2 << 2 | 1;
const MEMORY: u64 = 1 << 54 | 1 << 10 | 0b11 << 8 | 1;

global_asm!(
    include_str!("start.s"),
    base = const MEMORY_BASE,
    mair = const MAIR,
    tcr = const LOW | HIGH | RECORD,
    sctlr = const SCTLR,
    device = const DEVICE,
    memory = const MEMORY,
    stack = const STACK,
    first = sym first,
    second = sym run_second,
    kernel_trap = sym kernel_trap,
);

// SAFETY: `start.s` and the linker script define these symbols with these types.
unsafe extern "C" {
    static no_user: u8;
    static image_end: u8;
    static second_start: u8;
    fn enter_user(context: *mut Context);
}

/// The registers of a program.
#[repr(C)]
pub struct Context {
    /// The registers X0 to X30, the program counter, and the flags and the mode (SPSR).
    registers: [u64; 33],
}

const PC: usize = 31;
const SPSR: usize = 32;

impl Context {
    /// The registers of a program that begins at `start`, with `address` in X0 and `value` in X1.
    #[must_use]
    pub fn new(start: u64, address: u64, value: u64) -> Self {
        let mut registers = [0; 33];
        (registers[0], registers[1]) = (address, value);
        registers[PC] = start;
        registers[SPSR] = 0x3c0; // EL0, without interrupts
        Self { registers }
    }

    /// The second register of the program, X1.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.registers[1]
    }
}

/// Runs the program with these registers in user mode, until its next trap.
///
/// # Panics
/// At a trap that no program of the example takes.
pub fn enter(context: &mut Context) -> Trap {
    synchronize(context.registers[PC]);
    // SAFETY: ERET enters user mode, in which the tables permit no access to the memory of the kernel. A trap writes to
    // the context only, which this function borrows, and restores the registers that the calling convention preserves.
    unsafe { enter_user(context) };
    let (syndrome, address) = cause();
    let status = syndrome & 0x3f;
    match syndrome >> 26 {
        0x15 => Trap::Call,
        // A translation, access flag or permission fault.
        class @ (0x20 | 0x24) if (4..16).contains(&status) => Trap::PageFault {
            address,
            write: class == 0x24 && syndrome & 1 << 6 != 0,
            fetch: class == 0x20,
        },
        _ => panic!(
            "syndrome {syndrome:#x} in user mode at {:#x}",
            context.registers[PC]
        ),
    }
}

/// Makes the calling CPU execute what the kernel has written to the page of instructions at this user address, if a page
/// is mapped there.
fn synchronize(address: u64) {
    let translated: u64;
    // SAFETY: the translation reads the tables. The barrier completes the stores to them.
    unsafe {
        asm!("dsb ishst", "at s1e0r, {}", "isb", "mrs {}, par_el1", in(reg) address, out(reg) translated,
            options(nostack, preserves_flags));
    }
    if translated & 1 != 0 {
        return;
    }
    let page = MEMORY_BASE + (translated & 0xffff_ffff_f000);
    for line in (page..page + 4096).step_by(16) {
        // SAFETY: the page is mapped. Its data remain.
        unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: without cached instructions, the processor reads them again.
    unsafe {
        asm!(
            "dsb ish",
            "ic iallu",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        );
    };
}

/// The syndrome of the last exception on the calling CPU, and the address to which it applies.
fn cause() -> (u64, u64) {
    let (syndrome, address);
    // SAFETY: reading these registers has no effect.
    unsafe {
        asm!("mrs {}, esr_el1", "mrs {}, far_el1", out(reg) syndrome, out(reg) address,
            options(nomem, nostack, preserves_flags));
    };
    (syndrome, address)
}

extern "C" fn kernel_trap() -> ! {
    let (syndrome, address) = cause();
    panic!("syndrome {syndrome:#x} in the kernel, address {address:#x}")
}

/// The number of the calling CPU.
#[must_use]
pub fn cpu() -> usize {
    let number;
    // SAFETY: reading the register has no effect.
    unsafe {
        asm!("mrs {}, tpidr_el1", out(reg) number, options(nomem, nostack, preserves_flags));
    };
    number
}

/// The entry of the boot CPU.
extern "C" fn first() -> ! {
    serial_write(0x30, 0x301); // enabled, to transmit and to receive
    setup(0);
    let image = (&raw const image_end as u64 - MEMORY_BASE).next_multiple_of(4096);
    example_main(&Memory {
        free: image..memory(TREE).end.min(END) & !4095,
        root: &raw const no_user as u64 - MEMORY_BASE,
    })
}

/// Loads a root table without user memory on the calling CPU. It replaces the root with which the CPU started, which
/// maps address 0.
pub fn setup(_cpu: usize) {
    let empty = &raw const no_user as u64 - MEMORY_BASE;
    // SAFETY: the kernel is mapped by TTBR1_EL1.
    unsafe {
        asm!("msr ttbr0_el1, {}", "isb", "tlbi vmalle1", "dsb nsh", "isb", in(reg) empty,
            options(nostack, preserves_flags));
    }
}

/// Starts the second CPU. Called once, by the boot CPU.
///
/// # Panics
/// If the firmware refuses.
pub fn start_second() {
    let entry = &raw const second_start as u64 - MEMORY_BASE;
    let error: i64;
    // SAFETY: the CPU begins at the entry, on a stack of its own. A call may change the first 18 registers.
    unsafe {
        asm!("hvc 0", inlateout("x0") CPU_ON => error, in("x1") 1, in("x2") entry, in("x3") 0,
            clobber_abi("C"), options(nostack));
    }
    assert!(error == 0, "the second CPU does not start: {error}");
    while !STARTED.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
}

fn serial_write(register: u64, value: u32) {
    // SAFETY: the registers are mapped, and the serial port accesses no memory.
    unsafe { ((SERIAL + register) as *mut u32).write_volatile(value) };
}

/// Sends a byte to the serial port, which accepts it at any time under QEMU.
pub fn put(byte: u8) {
    serial_write(0, byte.into());
}

/// Ends QEMU: with exit code 0 on success, otherwise with 1.
pub fn end(success: bool) {
    let reason = [APPLICATION_EXIT, u64::from(!success)];
    // SAFETY: QEMU reads the two words.
    unsafe {
        asm!("hlt 0xf000", inlateout("x0") SYS_EXIT => _, in("x1") &raw const reason, options(nostack));
    };
}
