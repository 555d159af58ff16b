//! The information that the virtual machine monitor passes to the kernel: the start info, and the map of physical
//! memory in it.

pub mod memory_map;
pub mod pvh;
