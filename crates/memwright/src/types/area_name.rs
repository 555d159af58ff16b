//! The names that programs give to anonymous memory.

use alloc::vec::Vec;

/// A name that a program gave to anonymous memory. Two areas with different names do not merge.
#[derive(Debug, PartialEq, Eq)]
pub struct AreaName(Vec<u8>);

impl AreaName {
    /// Creates a name from `bytes`.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the name.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
