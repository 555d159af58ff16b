//! Access to user memory.

use memwright_table::Frame;

/// An access of the kernel to user memory faulted, and the fault could not be resolved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UserFault {
    /// The first address that could not be accessed.
    pub address: u64,
    /// The number of bytes that were copied before the fault.
    pub done: usize,
}

/// Access to user memory.
pub trait UserAccess: Sync {
    /// Copies from user memory. The caller has checked that the range is in user space.
    ///
    /// # Errors
    /// The first fault that `KernelEvents::user_fault` did not resolve.
    fn copy_from_user(&self, to: &mut [u8], from: u64) -> Result<(), UserFault>;

    /// Copies to user memory. The caller has checked that the range is in user space.
    ///
    /// # Errors
    /// The first fault that `KernelEvents::user_fault` did not resolve.
    fn copy_to_user(&self, to: u64, from: &[u8]) -> Result<(), UserFault>;

    /// Copies bytes of a frame to user memory, like [`copy_to_user`](Self::copy_to_user). The caller holds a reference
    /// to the frame. `offset + length` does not exceed the page size.
    ///
    /// # Errors
    /// The first fault that `KernelEvents::user_fault` did not resolve.
    fn copy_frame_to_user(
        &self,
        to: u64,
        frame: Frame,
        offset: usize,
        length: usize,
    ) -> Result<(), UserFault>;

    /// Copies user memory into a frame, like [`copy_from_user`](Self::copy_from_user). The caller holds a reference to
    /// the frame. `offset + length` does not exceed the page size.
    ///
    /// # Errors
    /// The first fault that `KernelEvents::user_fault` did not resolve.
    fn copy_frame_from_user(
        &self,
        frame: Frame,
        offset: usize,
        length: usize,
        from: u64,
    ) -> Result<(), UserFault>;

    /// Zeroes user memory. The caller has checked that the range is in user space.
    ///
    /// # Errors
    /// The first fault that `KernelEvents::user_fault` did not resolve.
    fn clear_user(&self, to: u64, length: usize) -> Result<(), UserFault>;

    /// Loads a user word atomically. The caller has checked that `address` is aligned and in user space.
    ///
    /// # Errors
    /// A fault that was not resolved.
    fn user_load32(&self, address: u64) -> Result<u32, UserFault>;

    /// Atomically replaces a user word with `new` if it equals `old`. Returns the previous value.
    ///
    /// # Errors
    /// A fault that was not resolved.
    fn user_compare_exchange32(&self, address: u64, old: u32, new: u32) -> Result<u32, UserFault>;

    /// Loads a user word like [`user_load32`](Self::user_load32), but returns `None` on a fault. The fault is not
    /// resolved, so the caller may hold locks.
    fn user_peek32(&self, address: u64) -> Option<u32>;

    /// Compares and exchanges like [`user_compare_exchange32`](Self::user_compare_exchange32), but returns `None` on a
    /// fault. The fault is not resolved, so the caller may hold locks.
    fn user_try_exchange32(&self, address: u64, old: u32, new: u32) -> Option<u32>;
}
