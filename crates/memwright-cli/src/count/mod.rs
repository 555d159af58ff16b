//! Counts a guest's events in QEMU, with a plugin and QEMU's log, and attributes the counts to functions.

pub mod counting;
pub mod fault_causes;
pub mod fault_log;
pub mod fault_maps;
pub mod fault_sites;
mod gates;
mod interrupts;
mod line;
pub mod log;
pub mod plugin;
pub mod raw;
pub mod said;
pub mod source;
pub mod symbols;
pub mod system;
pub mod tables;
pub mod tree;
mod user_source;
pub mod wires;
