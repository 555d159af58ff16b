//! What is counted from outside the guest: by the plugin of QEMU, or from its log; and what the counts are attributed to.

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
