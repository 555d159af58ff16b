//! The information that the virtual machine monitor passes to the kernel: the start info, and the physical memory that
//! it describes.

pub mod memory_map;
pub mod pvh;
