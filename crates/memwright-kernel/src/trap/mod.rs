//! Entries into the kernel.

pub mod catch;
pub mod entry;
pub mod frame;
pub mod idt;
