//! The machine q35: entry by the PVH protocol, a serial port, local APICs, and segments.

use core::arch::{asm, global_asm};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{CPUS, MEMORY_BASE, Memory, STACK, STARTED, Trap, example_main, run_second};

/// The kernel is linked at this address plus its physical address.
const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;

/// The registers of the local APIC of the calling CPU.
const APIC: u64 = MEMORY_BASE + 0xfee0_0000;

/// The page in which the second CPU starts. A startup interrupt can name pages below 1 MiB only.
const TRAMPOLINE: u64 = 0x8000;

const PAGE_FAULT: u64 = 14;
const SYSTEM_CALL: u64 = 0x80;
const INTERRUPT: u64 = 0xff; // also for spurious interrupts, for which the EOI has no effect

/// The selector of the task state of CPU 0. The selector for CPU 1 is 16 higher.
const TASK: u32 = 0x30;

global_asm!(
    include_str!("start.s"),
    lift = const IMAGE_BASE.wrapping_neg(),
    stack = const STACK,
    first = sym first,
    second = sym run_second,
    kernel_trap = sym kernel_trap,
    context = const 8 * WORDS,
    trampoline_page = const TRAMPOLINE,
);

// SAFETY: `start.s` and the linker script define these symbols with these types.
unsafe extern "C" {
    static root: u8;
    static image_end: u8;
    static trampoline: u8;
    static trampoline_end: u8;
    static vectors: u8;
    safe static gdt: [AtomicU64; 10];
    fn enter_user(context: *mut Context);
}

/// The descriptors of the handlers of traps: two words for each.
static IDT: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];

/// The task states. Their words 1 and 2 are the stack pointer for traps in user mode.
static TASKS: [[AtomicU32; 26]; CPUS] = [const { [const { AtomicU32::new(0) }; 26] }; CPUS];

/// The number of words that a trap in user mode pushes.
const WORDS: usize = 22;

// The indices of some of these words. The first words are R15 to R8, RBP, RDI, RSI, RDX, RCX, RBX and RAX.
const RDI: usize = 9;
const RSI: usize = 10;
const VECTOR: usize = 15;
const ERROR: usize = 16;
const RIP: usize = 17;

/// The registers of a program, followed by the stack pointer of the kernel while the program runs. A trap pushes the
/// registers in descending order of their index.
#[repr(C, align(16))]
pub struct Context([u64; WORDS], u64);

impl Context {
    /// The registers of a program that begins at `start`, with `address` in RDI and `value` in RSI.
    #[must_use]
    pub fn new(start: u64, address: u64, value: u64) -> Self {
        let mut words = [0; WORDS];
        (words[RDI], words[RSI]) = (address, value);
        // The code segment, the flags with interrupts enabled, no stack, and the stack segment.
        words[RIP..].copy_from_slice(&[start, 0x28 | 3, 0x202, 0, 0x20 | 3]);
        Self(words, 0)
    }

    /// The second register of the program, RSI.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0[RSI]
    }
}

/// Runs the program with these registers in user mode, until its next trap.
///
/// # Panics
/// At a trap that no program of the example takes.
pub fn enter(context: &mut Context) -> Trap {
    let end = &raw const context.1 as u64;
    TASKS[cpu()][1].store(end as u32, Ordering::Relaxed);
    TASKS[cpu()][2].store((end >> 32) as u32, Ordering::Relaxed);
    // SAFETY: the segments in the context are those of user mode, in which the tables permit no access to the memory of
    // the kernel. A trap writes to the context only, which this function borrows, and restores the registers that the
    // calling convention preserves.
    unsafe { enter_user(context) };
    match context.0[VECTOR] {
        PAGE_FAULT => Trap::PageFault {
            address: fault_address(),
            write: context.0[ERROR] & 2 != 0,
            fetch: context.0[ERROR] & 16 != 0,
        },
        SYSTEM_CALL => Trap::Call,
        INTERRUPT => {
            apic_write(0xb0, 0); // the end of the interrupt
            Trap::Interrupt
        }
        vector => panic!("vector {vector} in user mode at {:#x}", context.0[RIP]),
    }
}

extern "C" fn kernel_trap(vector: u64, error: u64, rip: u64) -> ! {
    panic!("vector {vector}, error {error:#x} in the kernel at {rip:#x}")
}

fn fault_address() -> u64 {
    let address;
    // SAFETY: reading CR2 has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// The number of the calling CPU, from its task register.
#[must_use]
pub fn cpu() -> usize {
    let task: u32;
    // SAFETY: reading the task register has no effect.
    unsafe { asm!("str {:e}", out(reg) task, options(nomem, nostack, preserves_flags)) };
    (task - TASK) as usize / 16
}

/// The entry of the boot CPU, with the physical address of the start info.
extern "C" fn first(start_info: u64) -> ! {
    for (vector, words) in (0..).zip(IDT.chunks(2)) {
        let handler = &raw const vectors as u64 + 16 * vector;
        // An interrupt gate. User mode may use only the gate of the system call.
        let kind = if vector == SYSTEM_CALL { 0xee } else { 0x8e };
        let low = handler & 0xffff | 0x10 << 16 | kind << 40 | (handler >> 16 & 0xffff) << 48;
        words[0].store(low, Ordering::Relaxed);
        words[1].store(handler >> 32, Ordering::Relaxed);
    }
    setup(0);
    let root_address = &raw const root as u64 - IMAGE_BASE;
    example_main(&Memory {
        free: free_memory(start_info),
        root: root_address,
    })
}

/// Loads the segments, the task state and the handlers of traps on the calling CPU, and enables its local APIC.
pub fn setup(cpu: usize) {
    TASKS[cpu][25].store(104 << 16, Ordering::Relaxed); // no port is permitted
    let (task, selector) = (TASKS[cpu].as_ptr() as u64, TASK as usize + 16 * cpu);
    let low = 0x8900_0000_0067 | (task & 0xff_ffff) << 16 | (task >> 24 & 0xff) << 56;
    gdt[selector / 8].store(low, Ordering::Relaxed);
    gdt[selector / 8 + 1].store(task >> 32, Ordering::Relaxed);
    let pointer = |limit: u64, base: u64| [limit | base << 16, base >> 48];
    let new_gdt = pointer(79, gdt.as_ptr() as u64);
    let new_idt = pointer(4095, IDT.as_ptr() as u64);
    // SAFETY: the tables are static and complete. The loaded selectors select the same descriptors as before, and no
    // other CPU uses the task state.
    unsafe {
        asm!("lgdt [{}]", "lidt [{}]", "ltr {:x}", in(reg) &new_gdt, in(reg) &new_idt, in(reg) selector,
            options(nostack, preserves_flags));
    }
    apic_write(0x350, 0x1_0000); // no interrupt of the legacy controllers
    apic_write(0xf0, 0x100 | INTERRUPT as u32); // enabled
}

/// The largest range of memory that the start info names (Xen, `public/arch-x86/hvm/start_info.h`) beyond the image.
fn free_memory(start_info: u64) -> Range<u64> {
    // SAFETY: the start info and its memory map are below 4 GiB, where all addresses are mapped.
    let read = |address| unsafe { ((MEMORY_BASE + address) as *const u64).read_unaligned() };
    let (map, count) = (read(start_info + 40), read(start_info + 48) as u32);
    let image = (&raw const image_end as u64 - IMAGE_BASE).next_multiple_of(4096);
    (0..u64::from(count))
        .map(|index| map + 24 * index)
        .filter(|entry| read(entry + 16) as u32 == 1) // usable
        .map(|entry| read(entry).max(image)..(read(entry) + read(entry + 8)).min(4 << 30) & !4095)
        .max_by_key(|range| range.end.saturating_sub(range.start))
        .expect("a range of memory")
}

/// Starts the second CPU. Called once, by the boot CPU.
pub fn start_second() {
    let code = &raw const trampoline;
    let length = &raw const trampoline_end as usize - code as usize;
    // SAFETY: the symbols delimit the code. The page is memory below 1 MiB that nothing else uses, and it is mapped.
    unsafe { ptr::copy_nonoverlapping(code, (MEMORY_BASE + TRAMPOLINE) as *mut u8, length) };
    send_to_other(0x4500); // INIT
    wait(10_000);
    while !STARTED.load(Ordering::Acquire) {
        send_to_other(0x4600 | (TRAMPOLINE >> 12) as u32); // startup
        wait(200);
    }
}

/// Interrupts the other CPU. A program there leaves user mode. If the CPU is in the kernel, the interrupt is pending
/// until it is in user mode.
pub fn interrupt_other() {
    send_to_other(0x4000 | INTERRUPT as u32);
}

/// Sends an interrupt to all CPUs but this one, after the previous interrupt has been delivered.
fn send_to_other(command: u32) {
    // SAFETY: the register is mapped, and reading it has no effect.
    while unsafe { ((APIC + 0x300) as *const u32).read_volatile() } & 0x1000 != 0 {}
    apic_write(0x300, 0xc_0000 | command);
}

fn apic_write(register: u64, value: u32) {
    // SAFETY: the registers are mapped. Writes to those that this module names affect no memory, except that a startup
    // interrupt makes the second CPU run `trampoline`.
    unsafe { ((APIC + register) as *mut u32).write_volatile(value) };
}

/// Waits for about this number of microseconds. A write to this port has no effect, and takes about one microsecond on
/// hardware.
fn wait(microseconds: u32) {
    (0..microseconds).for_each(|_| out(0x80, 0));
}

fn out(port: u16, value: u8) {
    // SAFETY: the devices at the ports that this module names access no memory.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags));
    };
}

/// Sends a byte to the first serial port, which accepts it at any time under QEMU.
pub fn put(byte: u8) {
    out(0x3f8, byte);
}

/// Ends QEMU by its device isa-debug-exit at port 0xf4: with exit code 33 on success, otherwise with 35.
pub fn end(success: bool) {
    out(0xf4, if success { 16 } else { 17 });
}
