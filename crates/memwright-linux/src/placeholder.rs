//! Shapes of the crates below, until they land.

/// A frame number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame(pub u32);
/// The machine below.
pub trait Machine: Send + Sync + 'static {}
/// An address space.
pub struct AddressSpace;
/// Physical memory.
pub struct PhysicalMemory;
