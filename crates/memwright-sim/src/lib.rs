//! A simulated machine for testing Memwright on a host.
//!
//! [`SimulatedMachine`] is a [`memwright_table::Machine`] made of ordinary memory: physical frames, CPUs, and for each
//! CPU a TLB and paging-structure caches that keep their entries until an invalidation drops them. A translation that
//! the tables no longer contain still *works* here, as it does on hardware but not under most emulators. A missing
//! invalidation of a translation that a CPU has cached therefore leads to a wrong byte or a failed
//! [audit](SimulatedMachine::audit).
//! ```text
//!   script ── Process ──┬── Cpu::{read, write, fetch} ── Tlb ──miss── walk ── entries in memory
//!                       │         │ PageFault
//!                       └── AddressSpace::fault ── ... ── Machine::invalidate_{local, remote} ── Tlb
//! ```
//!
//! - [`machine`]: memory, CPUs, the `Machine` implementation (the only `unsafe` of the crate); [`memory_type`]: the page
//!   attribute table of the CPUs.
//! - [`tlb`], [`walk`], [`mmu`]: what the hardware of one CPU does, after the *Intel 64 and IA-32
//!   Architectures Software Developer's Manual*, volume 3A, chapter 5 ("Paging"; chapter 4 in
//!   editions before 2023).
//! - [`adversary`]: a seeded source of what hardware *may* do: speculative fills, evictions, and invalidations that
//!   arrive as late as possible.
//! - [`mistake`]: mistakes planted on purpose, to prove that the machine detects them.
//! - [`cost`]: walks, hits, invalidations and interrupts, per CPU.
//! - [`schedule`]: runs a small case in every order of its threads' steps.
//! - [`programs`]: the machine as a [`TestMachine`](memwright_testkit::TestMachine). The programs, scripts and the model
//!   of the [test kit](memwright_testkit) run on it.
#![deny(missing_docs)]

pub mod adversary;
pub mod audit;
pub mod cost;
mod format;
pub mod locked;
pub mod machine;
pub mod memory_type;
pub mod mistake;
pub mod mmu;
pub mod programs;
pub mod schedule;
pub mod tlb;
pub mod walk;

pub use adversary::Adversary;
pub use audit::Incoherence;
pub use cost::Cost;
pub use format::Arch;
pub use machine::{MachineOptions, RightsMiss, SimulatedMachine};
pub use memory_type::MemoryType;
pub use mistake::Mistake;
pub use mmu::{Cpu, FaultCode, PageFault};
