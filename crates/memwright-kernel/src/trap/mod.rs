//! Entries into the kernel.

pub mod entry;
pub mod idt;
pub mod kernel;
