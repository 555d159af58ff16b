//! Page-aligned statics.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

/// Page-aligned bytes that are accessed through pointers only.
#[repr(C, align(4096))]
pub struct Bytes<const COUNT: usize>(UnsafeCell<[u8; COUNT]>);

// SAFETY: no reference to the bytes exists, and the users of the pointer synchronize their accesses.
unsafe impl<const COUNT: usize> Sync for Bytes<COUNT> {}

impl<const COUNT: usize> Bytes<COUNT> {
    /// Creates zeroed bytes.
    pub const fn zeroed() -> Self {
        Self(UnsafeCell::new([0; COUNT]))
    }

    /// Returns a pointer to the first byte.
    pub fn start(&'static self) -> NonNull<u8> {
        NonNull::from(&self.0).cast()
    }
}
