//! Counts a guest's events in QEMU, with a plugin and QEMU's log, and attributes the counts to functions.

mod apics;
pub mod counted;
pub mod counting;
mod cpu;
pub mod fault_causes;
pub mod fault_log;
pub mod fault_maps;
pub mod fault_sites;
mod gates;
mod interrupts;
pub mod line;
pub mod log;
mod open_passes;
mod placement;
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
