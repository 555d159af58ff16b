//! Disks as files: the interface between the file system and the disk drivers.

use crate::fs::{attributes::DeviceNumber, open_file::File};
use alloc::{boxed::Box, string::String, sync::Arc};
use memwright_linux_abi::errno::Errno;

/// A disk with a device node in `/dev`. A crate above the file system implements it.
pub trait DiskNode: Send + Sync {
    /// Returns the name of the device node in `/dev`.
    fn name(&self) -> String;

    /// Returns the device number of the disk.
    fn device_number(&self) -> DeviceNumber;

    /// Opens the device, exclusively if `alone` (`O_EXCL`).
    ///
    /// # Errors
    /// `EBUSY` if `alone` and the device is in use as swap.
    fn open(self: Arc<Self>, alone: bool) -> Result<Box<dyn File>, Errno>;
}
