//! Access to disks.

use memwright::{DeviceError, Submission, Ticket, Transfer};

/// A disk of the machine, accessed in pages.
pub trait BlockDevice: Sync {
    /// Returns the size of the disk in pages.
    fn pages(&self) -> u32;

    /// Returns the maximum number of transfers that are pending at a time: see
    /// [`SwapDevice::most_pending`](memwright::SwapDevice::most_pending).
    fn most_pending(&self) -> usize;

    /// Starts copying a page between a frame and the disk: see [`SwapDevice::submit`](memwright::SwapDevice::submit).
    fn submit(&self, transfer: Transfer) -> Submission;

    /// Waits until the transfer of `ticket` is complete: see [`SwapDevice::complete`](memwright::SwapDevice::complete).
    ///
    /// # Errors
    /// The disk reported an error.
    fn complete(&self, ticket: Ticket) -> Result<(), DeviceError>;
}
