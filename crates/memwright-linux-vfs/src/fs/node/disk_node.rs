//! Disks, as the file system knows them.

use crate::fs::{attributes::DeviceNumber, open_file::File};
use alloc::{boxed::Box, string::String, sync::Arc};
use memwright_linux_abi::errno::Errno;

/// A disk that a node of `/dev` names. It is implemented above the file system.
pub trait DiskNode: Send + Sync {
    /// Returns its name in `/dev`.
    fn name(&self) -> String;

    /// Returns its device number.
    fn device_number(&self) -> DeviceNumber;

    /// Opens the device, exclusively if `alone`.
    ///
    /// # Errors
    /// `EBUSY` if `alone` and the device is in use as swap.
    fn open(self: Arc<Self>, alone: bool) -> Result<Box<dyn File>, Errno>;
}
