//! Programs of user mode: a few instructions each, which the kernel runs until they end.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memwright::{Access, AddressSpace, FaultError, FaultKind};
use memwright_example_boot::{self as boot, Context, Trap};
use memwright_table::sync::{Lock, Rank, Threads};
use memwright_table::{Loaded, VirtAddr};

use crate::Hardware;

#[cfg(target_arch = "x86_64")]
global_asm!(
    "program_load:  mov rsi, [rdi]",
    "               int 0x80",
    "program_store: mov [rdi], rsi",
    "               int 0x80",
    "program_count: inc rsi",
    "               mov [rdi], rsi",
    "               jmp program_count",
    "program_end:",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    "program_load:  ldr x1, [x0]",
    "               svc 0",
    "program_store: str x1, [x0]",
    "               svc 0",
    "program_count: add x1, x1, 1",
    "               str x1, [x0]",
    "               b program_count",
    "program_end:",
);

#[cfg(target_arch = "riscv64")]
global_asm!(
    "program_load:  ld a1, 0(a0)",
    "               ecall",
    "program_store: sd a1, 0(a0)",
    "               ecall",
    "program_count: addi a1, a1, 1",
    "               sd a1, 0(a0)",
    "               j program_count",
    "program_end:",
);

// SAFETY: these symbols are in the assembly above.
unsafe extern "C" {
    static program_load: u8;
    static program_store: u8;
    static program_count: u8;
    static program_end: u8;
}

/// A program. It has two registers, an address and a value.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// Loads the value from the address, and ends.
    Load,
    /// Stores the value at the address, and ends.
    Store,
    /// Adds 1 to the value and stores it at the address, and repeats this forever.
    Count,
}

impl Program {
    /// Returns the instructions of all programs.
    pub fn code() -> &'static [u8] {
        let start = &raw const program_load;
        let length = &raw const program_end as usize - start as usize;
        // SAFETY: the symbols delimit the instructions, which nothing writes.
        unsafe { core::slice::from_raw_parts(start, length) }
    }

    /// Returns the offset of the program in the instructions that `code` returns.
    fn offset(self) -> u64 {
        let start = match self {
            Self::Load => &raw const program_load,
            Self::Store => &raw const program_store,
            Self::Count => &raw const program_count,
        };
        start as u64 - &raw const program_load as u64
    }
}

/// A program to be run, with its address space and its registers.
#[derive(Clone)]
pub struct Job {
    pub space: Arc<AddressSpace<Hardware>>,
    /// Where the instructions of the programs are mapped.
    pub code: VirtAddr,
    pub program: Program,
    pub address: VirtAddr,
    pub value: u64,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// The final value of the program.
    pub value: u64,
    /// The page faults of the program, in order. The program does not continue after a fault that cannot be resolved.
    pub faults: Vec<Result<FaultKind, FaultError>>,
}

/// The number of page faults that the MMU reported in user mode, on all CPUs.
pub static TRAPS: AtomicU64 = AtomicU64::new(0);

impl Job {
    /// Runs the program on the calling CPU, which has loaded the table of the address space.
    pub fn run(&self) -> Ended {
        let start = self.code.as_u64() + self.program.offset();
        let mut context = Context::new(start, self.address.as_u64(), self.value);
        let mut faults = Vec::new();
        loop {
            match boot::enter(&mut context) {
                Trap::Call => break,
                Trap::Interrupt => Hardware::relax(),
                Trap::PageFault {
                    address,
                    write,
                    fetch,
                } => {
                    TRAPS.fetch_add(1, Ordering::Relaxed);
                    let access = Access {
                        write,
                        fetch,
                        user: true,
                    };
                    let outcome = self.space.fault(VirtAddr::new(address), access);
                    faults.push(outcome);
                    // If a fault is resolved again and again, the program would never end.
                    if outcome.is_err() || faults.len() > 8 {
                        break;
                    }
                }
            }
        }
        Ended {
            value: context.value(),
            faults,
        }
    }

    /// Begins to run the program on the second CPU.
    pub fn begin_on_second(&self) {
        GIVEN.put(self.clone());
    }
}

/// A place through which one CPU passes values to the other, one at a time.
struct Place<T> {
    is_full: AtomicBool,
    value: Lock<Option<T>, Hardware>,
}

impl<T> Place<T> {
    const fn new() -> Self {
        Self {
            is_full: AtomicBool::new(false),
            value: Lock::new(Rank::Leaf, None),
        }
    }

    fn put(&self, value: T) {
        *self.value.lock() = Some(value);
        self.is_full.store(true, Ordering::Release);
    }

    /// Waits for a value.
    fn take(&self) -> T {
        loop {
            while !self.is_full.swap(false, Ordering::Acquire) {
                Hardware::relax();
            }
            if let Some(value) = self.value.lock().take() {
                return value;
            }
        }
    }
}

/// The program that the second CPU is to run.
static GIVEN: Place<Job> = Place::new();
/// How the last program on the second CPU ended.
static ENDED: Place<Ended> = Place::new();

/// Returns whether the program on the second CPU has ended.
pub fn second_has_ended() -> bool {
    ENDED.is_full.load(Ordering::Acquire)
}

/// Waits until the program on the second CPU has ended.
pub fn wait_for_second() -> Ended {
    ENDED.take()
}

/// Runs the programs that the second CPU is given, on that CPU.
pub fn serve() -> ! {
    loop {
        let job = GIVEN.take();
        let loaded = Loaded::new(&job.space);
        let ended = job.run();
        // A table may be dropped only if no CPU has it loaded.
        loaded.leave(job.space.memory().frames().machine().root);
        drop(job);
        ENDED.put(ended);
    }
}
