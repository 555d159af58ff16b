//! The Linux personality: processes, signals, files and system calls on the memory manager.
//!
//! This crate accesses no hardware: the machine is behind [`host::Host`]. A thread runs a loop (`run`): it runs user
//! mode until a trap, handles the trap, delivers signals, and returns to user mode.
//!
//! # Locks
//! The order is that of [`sync::Rank`]: the process table, a process's signals, descriptors, files, the address space,
//! run queues, wait queues. No lock is held during a user copy or a wait.
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` lists what may allocate; tests may allocate freely.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

#[macro_use]
mod flags;

pub mod abi;
pub mod account;
pub mod arch;
mod audit;
pub(crate) mod batch;
pub mod boot;
mod call_counts;
pub mod cgroup;
pub mod changes;
pub mod channel;
pub mod context;
pub mod cpio;
pub mod current;
mod deliver;
mod direct_reclaim;
#[cfg(test)]
mod draws;
pub mod errno;
pub mod events;
pub mod exec;
mod faulted_in;
mod faults;
mod file_signal;
pub mod fs;
mod futex;
mod hand;
pub mod host;
mod huge_scan;
pub mod identity;
pub mod io_uring;
mod ipc;
pub mod kernel;
pub mod lifecycle;
pub mod manifest;
pub mod memory;
mod merge_scan;
pub(crate) mod numa;
mod oom;
mod ordered;
pub mod paged;
mod parts;
pub mod perf_event;
pub mod pidfd;
mod probe_step;
mod probes;
pub mod process;
pub mod procfs;
mod protection_keys;
mod ptrace;
pub mod random;
mod reclaim;
mod reclaim_cursor;
mod references;
mod restartable;
pub mod run;
pub mod scheduler;
mod semaphores;
pub(crate) mod short;
pub mod short_list;
pub mod signal;
pub mod signalfd;
pub mod swap;
mod sweep;
pub mod sync;
pub mod syscall;
pub mod thread_registers;
pub mod time;
pub mod trace;
pub(crate) mod uname;
pub mod user;
pub mod userfault;
pub mod wait;

/// The machine type of the crates below. On bare metal it is the linked machine, so that its methods can be inlined;
/// elsewhere it is the machine that a test creates.
#[cfg(target_os = "none")]
pub type M = memwright_table::Linked;
/// The machine type of the crates below.
#[cfg(not(target_os = "none"))]
pub type M = &'static dyn host::Host;
/// An address space.
pub type Space = memwright::AddressSpace<M>;
/// Physical memory and its counters.
pub type Memory = memwright::Memory<M>;
