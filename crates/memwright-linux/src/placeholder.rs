//! Shapes of the memory manager, until it lands.

pub use memwright_table::{Frame, Machine};
/// An address space.
pub struct AddressSpace;
/// Physical memory.
pub struct PhysicalMemory;
