//! Counting from outside the guest, by QEMU's plugin or from its log, and the attribution of counts to functions.

pub mod counting;
mod gates;
mod interrupts;
pub mod log;
pub mod plugin;
pub mod raw;
pub mod said;
pub mod source;
pub mod symbols;
pub mod system;
pub mod tables;
pub mod tree;
pub mod wires;
