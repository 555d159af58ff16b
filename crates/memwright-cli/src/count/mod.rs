//! Counts a guest's events in QEMU, with a plugin and QEMU's log, and attributes the counts to functions.

mod apics;
pub mod counting;
mod gates;
mod interrupts;
pub mod line;
pub mod log;
mod placement;
pub mod plugin;
pub mod raw;
pub mod said;
pub mod source;
pub mod symbols;
pub mod system;
pub mod tables;
pub mod tree;
pub mod wires;
