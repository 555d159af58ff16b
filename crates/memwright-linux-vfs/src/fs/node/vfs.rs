//! The state that all file systems and open files share.

use crate::{
    direct_reclaim::DirectReclaim,
    fs::{
        attributes::Moment, caller::Caller, dentry::Dentry, file_limits::FileLimits, inode::Inode,
        locks::waits::LockWaits, node::mounts::Mounts, open_kind::OpenCounts,
    },
    random::Random,
};
use alloc::sync::Arc;
use memwright_linux_abi::{
    Memory,
    abi::SECOND,
    errno::Errno,
    host::{Channels, Clock, Instruments},
};
use memwright_linux_base::sync::Lock;

/// Creates userfaultfds for the device `/dev/userfaultfd`.
pub trait UserfaultMaker: Sync {
    /// Creates a userfaultfd for the caller's memory. Returns its descriptor.
    ///
    /// # Errors
    /// `EINVAL` for unknown flags, and the errors of creating a descriptor.
    fn make(&self, caller: &dyn Caller, flags: u32) -> Result<u64, Errno>;
}

/// The virtual file system: the tree, the limits, and what files need of the rest of the machine.
pub struct Vfs {
    /// Physical memory.
    pub memory: Arc<Memory>,
    /// Reclaims pages for operations that find no memory.
    pub reclaim: Arc<dyn DirectReclaim + Send>,
    /// The clock.
    pub clock: &'static dyn Clock,
    /// The channels behind the standard streams.
    pub channels: &'static dyn Channels,
    /// Tells when the kernel heap is low.
    pub instruments: &'static dyn Instruments,
    /// Seconds since 1970 at boot.
    pub epoch: u64,
    /// Rows and columns of the terminal.
    pub terminal_size: (u16, u16),
    /// The file-system tree.
    pub mounts: Mounts<Dentry>,
    /// The number of open files.
    pub open_files: OpenCounts,
    /// Limits of `/proc/sys/fs`.
    pub file_limits: FileLimits,
    /// Threads waiting for record locks.
    pub lock_waits: LockWaits<Inode>,
    /// Creates userfaultfds, once the memory calls have started.
    pub userfaultfds: Lock<Option<&'static dyn UserfaultMaker>>,
    /// The source of all random numbers.
    pub random: Lock<Random>,
}

impl Vfs {
    /// Returns the current time of the real-time clock, in the form in which inodes record times.
    pub fn now(&self) -> Moment {
        Moment::from_nanoseconds(self.real_time())
    }

    /// Returns the real time in nanoseconds since 1970.
    pub fn real_time(&self) -> u64 {
        self.epoch * SECOND + self.clock.now()
    }
}
