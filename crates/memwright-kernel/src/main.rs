//! The bare-metal x86-64 kernel: the machine below the Linux personality.
//!
//! It boots by the PVH protocol under `qemu-system-x86_64 -kernel`, builds its own page tables, and provides memory,
//! traps, clock and channels to `memwright-linux`, which never returns. It contains no system calls, processes or
//! files.
//!
//! Interrupts are enabled in user mode and while a CPU is halted. Outside of a halt, the kernel runs with interrupts
//! disabled, except for a moment at the end of a wait for input. Per-CPU data is accessed through GS (`percpu`). The
//! entries to and exits from user mode are in `trap::entry`.
#![no_std]
#![no_main]
#![deny(unsafe_op_in_unsafe_fn)]

extern crate alloc;

mod apic;
mod arch;
mod boot;
mod clock;
mod context;
mod control;
mod disk;
mod exception;
mod heap;
mod host;
mod input;
mod ipi;
mod machine;
mod memory;
mod pci;
mod percpu;
mod report;
#[expect(clippy::disallowed_macros, reason = "no program runs")]
mod selftest;
mod smp;
mod start;
mod tlb;
mod trace;
mod trap;
mod usercopy;
mod window;
