//! Runs the test kit of Memwright on the processors of the example kernel: each access of the kit's programs is an
//! instruction in user mode, and the processors walk the page tables.
//!
//! `cargo xtask example kit` builds it for bare metal, and runs it under QEMU.
#![no_std]
#![no_main]

extern crate alloc;

mod heap;
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64.rs")]
mod machine;
mod mistaken;
mod thread;
mod user;

use alloc::format;
use alloc::string::String;

use memwright_example_boot::{self as boot, CPUS, println};
use memwright_table::{Frame, FrameRange, Machine, PAGE_SIZE, PhysAddr, Region};
use memwright_testkit::{Options, run};

use mistaken::{Mistake, Mistaken};

/// The number of bytes of the heap.
const HEAP_SIZE: usize = 8 << 20;

/// The number of frames for scripts without huge pages.
const FEW: u32 = 1024;

/// The number of random programs. A mistake is found by one of the first 30.
const PROGRAMS: u32 = 60;

/// The processors, and the memory that Memwright manages. `machine` implements the traits of Memwright.
#[derive(Clone, Copy)]
pub struct Hardware {
    memory: FrameRange,
    /// The root table of a CPU that runs no program.
    root: Frame,
}

boot::entries!(main, thread::serve);

/// Makes the boot CPU run the kit, and starts the second CPU.
fn main(memory: &boot::Memory) -> ! {
    let buffer = user::map(memory);
    let start = memory.free.start + user::FRAMES * PAGE_SIZE as u64;
    let [start, end, root] =
        [start, memory.free.end, memory.root].map(|address| PhysAddr::new(address).frame());
    let count = end.number() - start.number();
    let hardware = Hardware {
        memory: FrameRange { start, count },
        root,
    };
    thread::begin();
    boot::start_second();
    boot::exit(&outcome(hardware, buffer))
}

/// Runs the kit, and then again with each mistake. Returns an error that says what is wrong with the machine or with
/// the kit.
fn outcome(hardware: Hardware, buffer: user::Buffer) -> Result<(), String> {
    let run = |mistake, frames, programs| {
        let range = FrameRange {
            start: hardware.memory.start,
            count: hardware.memory.count.min(frames),
        };
        let machine = Mistaken {
            hardware,
            buffer,
            mistake,
        };
        let options = Options {
            programs,
            // A mistake must be found by the scripts, so the checks before the scripts are omitted.
            preflight: mistake.is_none(),
            ..Options::default()
        };
        run(machine, &[Region { range, node: 0 }], &options)
    };
    // After each step, the kit looks at all frames. Scripts with huge pages need many frames, the other scripts few.
    let report = run(None, FEW, PROGRAMS).map_err(|failure| format!("{failure}"))?;
    println!("the test kit: {report}");
    let report = run(None, u32::MAX, 0).map_err(|failure| format!("{failure}"))?;
    println!("with huge pages: {report}");
    for &mistake in Mistake::ALL {
        let Err(failure) = run(Some(mistake), FEW, PROGRAMS) else {
            return Err(format!("{mistake:?} was not found"));
        };
        // The run has left its roots loaded on the processors.
        for cpu in (0..CPUS).rev() {
            thread::move_to(cpu);
            hardware.load_root(hardware.root);
        }
        println!("{mistake:?}: found by {}", failure.name);
    }
    Ok(())
}
