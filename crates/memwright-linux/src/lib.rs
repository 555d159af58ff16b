//! The Linux personality: processes, signals, files and system calls on the memory manager.
//!
//! No hardware is touched here: the machine is behind [`host::Host`]. A thread's life is a loop
//! (`run`): user mode, a trap, what the trap asked for, signals, and back.
//!
//! # Locks
//! The order is that of [`sync::Rank`]: the process table, a process's signals, descriptors, files,
//! the address space, run queues, wait queues. A lock is never held over a user copy or a wait.
#![no_std]
#![forbid(unsafe_code)]
// What may grow is listed in `clippy.toml`; tests grow as they like.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

#[macro_use]
mod flags;

pub mod abi;
pub mod account;
pub mod arch;
mod audit;
pub(crate) mod batch;
pub mod cgroup;
pub mod changes;
pub mod channel;
pub mod context;
pub mod cpio;
#[cfg(test)]
mod draws;
pub mod errno;
pub mod events;
pub mod exec;
mod faulted_in;
pub mod fs;
mod futex;
mod hand;
pub mod host;
mod huge_scan;
mod ipc;
pub mod kernel;
pub mod manifest;
pub mod memory;
mod merge_scan;
pub(crate) mod numa;
mod oom;
mod ordered;
pub mod paged;
mod probes;
pub mod process;
mod ptrace;
pub mod random;
mod reclaim;
mod relief;
mod run;
pub mod scheduler;
mod semaphores;
pub(crate) mod short;
pub mod signal;
pub mod swap;
mod sweep;
pub mod sync;
pub mod syscall;
pub mod time;
pub mod trace;
pub mod user;
pub mod wait;

/// The machine, as the crates below know it: on bare metal the one that is linked in, so that its methods
/// are inlined; on a host whichever a test makes.
#[cfg(target_os = "none")]
pub type M = memwright_table::Linked;
/// The machine, as the crates below know it.
#[cfg(not(target_os = "none"))]
pub type M = &'static dyn host::Host;
/// An address space.
pub type Space = memwright::AddressSpace<M>;
/// Physical memory and the account.
pub type Memory = memwright::Memory<M>;
