//! Accesses of user mode: a few instructions in a page of the kernel's half that user mode may execute.
//!
//! The next page is a buffer, through which the bytes of loads and stores pass.

use core::arch::global_asm;

use memwright::Access;
use memwright_example_boot::{self as boot, Context, MEMORY_BASE};
use memwright_table::{Architecture, Frame, Machine, PAGE_SIZE, PhysAddr, VirtAddr};
use memwright_testkit::Trap;

use crate::Hardware;

#[cfg(target_arch = "x86_64")]
global_asm!(
    "user_load:  mov rcx, rsi",
    "            mov rsi, rdi",
    "            lea rdi, [rip + user_load + 4096]",
    "            rep movsb",
    "            int 0x80",
    "user_store: mov rcx, rsi",
    "            lea rsi, [rip + user_load + 4096]",
    "            rep movsb",
    "            int 0x80",
    "user_fetch: jmp rdi",
    "user_end:",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    "user_load:  adr x2, user_load + 4096",
    "1:          ldrb w3, [x0], 1",
    "            strb w3, [x2], 1",
    "            subs x1, x1, 1",
    "            b.ne 1b",
    "            svc 0",
    "user_store: adr x2, user_load + 4096",
    "1:          ldrb w3, [x2], 1",
    "            strb w3, [x0], 1",
    "            subs x1, x1, 1",
    "            b.ne 1b",
    "            svc 0",
    "user_fetch: br x0",
    "user_end:",
);

#[cfg(target_arch = "riscv64")]
global_asm!(
    ".option push",
    ".option norelax",
    "user_load:  auipc a2, 1", // a byte of the next page
    "            srli a2, a2, 12",
    "            slli a2, a2, 12",
    "1:          lbu a3, 0(a0)",
    "            sb a3, 0(a2)",
    "            addi a0, a0, 1",
    "            addi a2, a2, 1",
    "            addi a1, a1, -1",
    "            bnez a1, 1b",
    "            ecall",
    "user_store: auipc a2, 1",
    "            srli a2, a2, 12",
    "            slli a2, a2, 12",
    "1:          lbu a3, 0(a2)",
    "            sb a3, 0(a0)",
    "            addi a0, a0, 1",
    "            addi a2, a2, 1",
    "            addi a1, a1, -1",
    "            bnez a1, 1b",
    "            ecall",
    "user_fetch: jr a0",
    "user_end:",
    ".option pop",
);

// SAFETY: these symbols are in the assembly above.
unsafe extern "C" {
    static user_load: u8;
    static user_store: u8;
    static user_fetch: u8;
    static user_end: u8;
}

/// The instruction of a system call.
#[cfg(target_arch = "x86_64")]
const CALL: [u8; 2] = [0xcd, 0x80];
#[cfg(target_arch = "aarch64")]
const CALL: [u8; 4] = [0x01, 0, 0, 0xd4];
#[cfg(target_arch = "riscv64")]
const CALL: [u8; 4] = [0x73, 0, 0, 0];

/// The bits of entries for user mode: of an entry that points to a table, of one that maps instructions, and of one
/// that maps data.
#[cfg(target_arch = "x86_64")]
const BITS: [u64; 3] = [0x07, 0x25, 1 << 63 | 0x67];
#[cfg(target_arch = "aarch64")]
const BITS: [u64; 3] = [0x03, 1 << 53 | 0x7c3, 0b11 << 53 | 0x743];
#[cfg(target_arch = "riscv64")]
const BITS: [u64; 3] = [0x01, 0x5b, 0xd7];

const LEVELS: u32 = <<Hardware as Machine>::Arch as Architecture>::LEVELS as u32;

/// The user address of the instructions, in a part of the kernel's half that is free.
const CODE: u64 = MEMORY_BASE + (64 << (12 + 9 * (LEVELS - 1)));

/// The number of frames that [`map`] uses.
pub const FRAMES: u64 = LEVELS as u64 + 1;

/// The physical address of the root table of the kernel's half.
#[cfg(not(target_arch = "aarch64"))]
fn kernel_root(memory: &boot::Memory) -> u64 {
    memory.root
}

#[cfg(target_arch = "aarch64")]
fn kernel_root(_: &boot::Memory) -> u64 {
    let root;
    // SAFETY: reading the register has no effect.
    unsafe {
        core::arch::asm!("mrs {}, ttbr1_el1", out(reg) root, options(nomem, nostack, preserves_flags));
    };
    root
}

/// Stores an entry of a page table.
///
/// # Safety
/// The entry is empty, and is at this index in the table with this physical address.
unsafe fn set_entry(table: u64, index: u64, address: u64, bits: u64) {
    let shift = if cfg!(target_arch = "riscv64") { 2 } else { 0 };
    let entry = (MEMORY_BASE + table + 8 * index) as *mut u64;
    // SAFETY: all physical memory is mapped, and the caller names an entry.
    unsafe { entry.write_volatile(address >> shift | bits) };
}

/// The buffer between the kernel and user mode.
#[derive(Clone, Copy)]
pub struct Buffer(*mut u8);

/// Maps the instructions and the buffer in the kernel's half, before the second CPU starts. Uses the first [`FRAMES`]
/// frames of free memory.
pub fn map(memory: &boot::Memory) -> Buffer {
    let mut frames = (0..FRAMES).map(|index| memory.free.start + index * PAGE_SIZE as u64);
    let mut new = || frames.next().expect("enough frames");
    let pointer = |frame| (MEMORY_BASE + frame) as *mut u8;
    let index = |level| CODE >> (12 + 9 * level) & 511;
    let mut table = kernel_root(memory);
    for level in (1..LEVELS).rev() {
        let next = new();
        // SAFETY: the frame is free, and the entry is empty.
        unsafe {
            pointer(next).write_bytes(0, PAGE_SIZE);
            set_entry(table, index(level), next, BITS[0]);
        }
        table = next;
    }
    let (code, buffer) = (new(), new());
    let start = &raw const user_load;
    let length = &raw const user_end as usize - start as usize;
    // SAFETY: the symbols delimit the instructions. The frames are free, and the entries are empty.
    unsafe {
        start.copy_to_nonoverlapping(pointer(code), length);
        set_entry(table, index(0), code, BITS[1]);
        set_entry(table, index(0) + 1, buffer, BITS[2]);
    }
    Buffer(pointer(buffer))
}

/// Runs the instructions at `symbol` in user mode until they end by a system call.
///
/// # Errors
/// The page fault of the instructions.
fn run(symbol: *const u8, address: VirtAddr, length: usize) -> Result<(), Trap> {
    let offset = symbol as u64 - &raw const user_load as u64;
    let mut context = Context::new(CODE + offset, address.as_u64(), length as u64);
    loop {
        match boot::enter(&mut context) {
            boot::Trap::Call => return Ok(()),
            boot::Trap::Interrupt => <Hardware as memwright_table::sync::Threads>::relax(),
            boot::Trap::PageFault {
                address,
                write,
                fetch,
            } => {
                let address = VirtAddr::new(address);
                let access = Access {
                    write,
                    fetch,
                    user: true,
                };
                return Err(Trap { address, access });
            }
        }
    }
}

impl Buffer {
    /// Loads bytes of one page in user mode.
    ///
    /// # Errors
    /// The page fault of the load.
    pub fn load(self, address: VirtAddr, into: &mut [u8]) -> Result<(), Trap> {
        assert!(into.len() <= PAGE_SIZE);
        run(&raw const user_load, address, into.len())?;
        // SAFETY: the buffer is a page, which no program accesses now.
        unsafe { self.0.copy_to(into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Stores bytes to one page in user mode.
    ///
    /// # Errors
    /// The page fault of the store.
    pub fn store(self, address: VirtAddr, from: &[u8]) -> Result<(), Trap> {
        assert!(from.len() <= PAGE_SIZE);
        // SAFETY: as in `load`.
        unsafe { self.0.copy_from(from.as_ptr(), from.len()) };
        run(&raw const user_store, address, from.len())
    }
}

/// Jumps to `address` in user mode. During the jump, `frame`, which the page tables name for the address, contains the
/// instruction of a system call there. Returns the byte that the frame contains otherwise.
///
/// # Errors
/// The page fault of the jump.
///
/// # Panics
/// If the processor executes another instruction, or executes one although `frame` is `None`.
pub fn fetch(frame: Option<Frame>, address: VirtAddr) -> Result<u8, Trap> {
    let Some(frame) = frame else {
        run(&raw const user_fetch, address, 0)?;
        panic!("executed an instruction at {address:?}, where no page is mapped");
    };
    let physical = PhysAddr::new(frame.address().as_u64() + address.offset() as u64);
    let place = (MEMORY_BASE + physical.as_u64()) as *mut [u8; CALL.len()];
    // SAFETY: all physical memory is mapped. Only the calling thread accesses the frame, and it restores the bytes.
    unsafe {
        let bytes = place.read_volatile();
        place.write_volatile(CALL);
        // Entering user mode completes this instruction.
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("dc cvau, {}", in(reg) place, options(nostack, preserves_flags));
        let outcome = run(&raw const user_fetch, address, 0);
        place.write_volatile(bytes);
        outcome.map(|()| bytes[0])
    }
}
