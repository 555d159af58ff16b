//! Physical memory, and the kernel's own half of the address space.

pub mod frames;
pub mod paging;
pub mod ranges;
