//! The Linux personality: processes, signals, files and system calls on top of the memory manager.
//!
//! This crate accesses no hardware: it reaches the machine through [`Host`]. Each thread runs a loop (`run`): it runs
//! user mode until a trap, handles the trap, delivers signals, and returns to user mode.
//!
//! # Locks
//! Locks are taken in the order of [`Rank`]: the process table, a process's signals, descriptors, files, the address
//! space, run queues, wait queues. No lock is held during a user copy or a wait.
//!
//! [`Host`]: memwright_linux_abi::host::Host
//! [`Rank`]: memwright_linux_base::sync::Rank
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` disallows calls that abort if memory is exhausted. Tests may use them.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

pub mod account;
mod audit;
pub mod boot;
pub mod context;
pub mod current;
mod deliver;
pub mod events;
pub mod exec;
mod faulted_in;
pub mod io_uring;
pub mod kernel;
pub mod lifecycle;
mod parts;
mod probe_step;
mod ptrace;
mod restartable;
pub mod run;
pub mod syscall;
pub mod thread_registers;
pub mod trace;
