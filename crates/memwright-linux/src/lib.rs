//! The Linux personality.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod abi;
pub mod arch;
pub mod channel;
pub mod context;
pub mod cpio;
pub mod errno;
pub mod fs;
pub mod host;
pub mod kernel;
pub mod manifest;
pub mod process;
pub mod random;
pub mod scheduler;
pub mod sync;
pub mod syscall;
pub mod user;
pub mod wait;

/// The machine, as the crates below know it.
pub type M = &'static dyn host::Host;
/// An address space.
pub type Space = memwright::AddressSpace<M>;
/// Physical memory and the memory manager's account.
pub type Memory = memwright::Memory<M>;
