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
mod placeholder;
pub mod process;
pub mod scheduler;
pub mod sync;
pub mod syscall;
pub mod user;
pub mod wait;

pub use placeholder::{AddressSpace as Space, Frame, PhysicalMemory as Memory};
