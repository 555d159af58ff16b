//! The interfaces of the Linux personality: the structures, error numbers, signals and registers that programs use, the
//! channels to the `memwright` command, and the traits of the machine below the personality.
//!
//! The personality accesses hardware only through [`host::Host`].
#![no_std]
#![forbid(unsafe_code)]
// `clippy.toml` disallows calls that abort if memory is exhausted. Tests may use them.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

extern crate alloc;

pub mod abi;
pub mod arch;
pub mod channel;
pub mod errno;
pub mod host;
pub mod protection_keys;
pub mod signal;

/// The machine type with which the memory manager is instantiated. On bare metal it is the linked machine, so that its
/// methods can be inlined.
#[cfg(target_os = "none")]
pub type M = memwright_table::Linked;
/// The machine type with which the memory manager is instantiated. In a build for a host, it is the machine that a test
/// creates.
#[cfg(not(target_os = "none"))]
pub type M = &'static dyn host::Host;
/// An address space.
pub type Space = memwright::AddressSpace<M>;
/// Physical memory and its counters.
pub type Memory = memwright::Memory<M>;
