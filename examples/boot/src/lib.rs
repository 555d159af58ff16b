//! Boots the example kernel on two CPUs of QEMU: on the machine q35 of x86-64, and on the machines virt of AArch64 and
//! of RISC-V.
//!
//! The crate does not use Memwright. It contains what a kernel has in any case: the first instructions, a root table
//! with the kernel in its upper half, a console, the start of a second CPU, and the way to user mode and back.
//!
//! The kernel runs with interrupts disabled. A program runs in user mode during a call of `enter`, which returns at the
//! program's next trap. The kernel therefore has one stack for each CPU, and handles the trap after the call.
#![cfg(target_os = "none")]
#![no_std]

use core::fmt::{self, Display, Write};
use core::ops::Range;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

#[cfg_attr(target_arch = "x86_64", path = "x86_64/mod.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/mod.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64/mod.rs")]
mod arch;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
mod device_tree;

#[cfg(target_arch = "x86_64")]
pub use arch::interrupt_other;
pub use arch::{Context, cpu, enter, start_second};
#[cfg(target_arch = "riscv64")]
pub use arch::{PAGING_MODE, hart, sbi};

/// The number of CPUs.
pub const CPUS: usize = 2;

/// The virtual address of physical address 0: all physical memory is mapped from here on.
pub const MEMORY_BASE: u64 = if cfg!(feature = "sv39") {
    0xffff_ffc0_0000_0000
} else {
    0xffff_8000_0000_0000
};

/// The number of bytes of the stack of each CPU.
const STACK: usize = 128 << 10;

/// How a program left user mode.
#[derive(Clone, Copy, Debug)]
pub enum Trap {
    /// The MMU refused an access to this address.
    PageFault {
        /// The address.
        address: u64,
        /// Whether the access was a store.
        write: bool,
        /// Whether the access was an instruction fetch.
        fetch: bool,
    },
    /// The program executed a system call.
    Call,
    /// Another CPU interrupted this one.
    Interrupt,
}

/// The physical memory that is passed to the kernel's main function.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The physical addresses of free memory, in whole pages.
    pub free: Range<u64>,
    /// The physical address of the root table of a CPU that runs no program. Its upper half never changes.
    pub root: u64,
}

/// Defines what the CPUs run: the boot CPU calls `$main`, a `fn(&Memory) -> !`, and the second CPU calls `$second`, a
/// `fn() -> !`. Used once, in the kernel.
#[macro_export]
macro_rules! entries {
    ($main:path, $second:path) => {
        // SAFETY: the crate that defines the macro declares the symbol with this type, and no other code defines it.
        #[unsafe(no_mangle)]
        fn example_main(memory: &$crate::Memory) -> ! {
            $main(memory)
        }

        // SAFETY: as above.
        #[unsafe(no_mangle)]
        fn example_second() -> ! {
            $second()
        }
    };
}

// SAFETY: `entries!` defines the functions with these types.
unsafe extern "Rust" {
    safe fn example_main(memory: &Memory) -> !;
    safe fn example_second() -> !;
}

/// Whether the second CPU has started.
static STARTED: AtomicBool = AtomicBool::new(false);

/// The entry of the second CPU.
extern "C" fn run_second() -> ! {
    arch::setup(1);
    STARTED.store(true, Ordering::Release);
    example_second()
}

/// The console.
struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(arch::put);
        Ok(())
    }
}

/// Prints a line on the console.
pub fn print(line: fmt::Arguments<'_>) {
    // The console never fails.
    let _ = writeln!(Console, "{line}");
}

/// Prints a line on the console, as `std::println!` does.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => { $crate::print(format_args!($($argument)*)) };
}

/// Prints whether the kernel succeeded, and ends QEMU with an exit code that depends on it.
pub fn exit(outcome: &Result<(), impl Display>) -> ! {
    match outcome {
        Ok(()) => println!("PASSED"),
        Err(reason) => println!("FAILED: {reason}"),
    }
    arch::end(outcome.is_ok());
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    exit(&Err(info))
}
