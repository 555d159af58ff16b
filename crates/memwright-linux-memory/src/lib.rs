//! Memory management for the threads of all processes: page faults, the factory of address spaces, direct and
//! background reclaim, swap devices, the OOM killer, cgroups, the scans of khugepaged and ksmd, NUMA balancing,
//! futexes, System V memory and semaphores, and userfaultfd contexts.
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` disallows calls that abort if memory is exhausted. Tests may use them.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

pub mod cgroup;
pub mod faults;
pub mod futex;
pub mod hand;
pub mod huge_scan;
pub mod ipc;
pub mod memory;
pub mod merge_scan;
pub mod numa;
pub mod oom;
pub mod reclaim;
pub mod semaphores;
pub mod swap;
pub mod userfault;
