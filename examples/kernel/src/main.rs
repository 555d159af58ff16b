//! A small kernel that takes its memory management from Memwright. It maps memory, resolves the page faults of user
//! mode, changes rights, forks, tracks written pages and swaps, on two CPUs. It fails unless each of its programs takes
//! exactly the traps that it must take.
//!
//! `cargo xtask example kernel` builds it for bare metal, and runs it under QEMU.
#![no_std]
#![no_main]

extern crate alloc;

mod heap;
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64.rs")]
mod machine;
mod program;
mod scenario;
mod swap;

use alloc::sync::Arc;

use memwright::{Memory, Policy};
use memwright_example_boot as boot;
use memwright_table::{Frame, FrameRange, Frames, PhysAddr, Region};

/// The number of bytes of the heap.
const HEAP_SIZE: usize = 256 << 10;

/// The processors, and the memory that Memwright manages. `machine` implements the traits of Memwright.
struct Hardware {
    memory: FrameRange,
    /// The root table of a CPU that runs no program.
    root: Frame,
}

boot::entries!(main, program::serve);

/// Creates the memory manager on the boot CPU, starts the second CPU, and performs the scenario.
fn main(memory: &boot::Memory) -> ! {
    let [start, end, root] = [memory.free.start, memory.free.end, memory.root]
        .map(|address| PhysAddr::new(address).frame());
    let count = end.number() - start.number();
    let range = FrameRange { start, count };
    let hardware = Hardware {
        memory: range,
        root,
    };
    let frames = Frames::new(hardware, &[Region { range, node: 0 }]).expect("frames");
    let memory = Memory::new(Arc::new(frames), Policy::default()).expect("a memory");
    boot::start_second();
    boot::exit(&scenario::run(&Arc::new(memory)))
}
