//! The state that all file systems and open files share, and the services of the kernel that they use.

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
    /// Creates a userfaultfd for the memory of the calling process. Returns its descriptor.
    ///
    /// # Errors
    /// `EINVAL` for unknown flags, and the errors of creating a descriptor.
    fn make(&self, caller: &dyn Caller, flags: u32) -> Result<u64, Errno>;
}

/// The virtual file system: the mount tree, the limits, and the services of the kernel that files use.
pub struct Vfs {
    /// The physical memory.
    pub memory: Arc<Memory>,
    /// Reclaims pages for operations that find no memory.
    pub reclaim: Arc<dyn DirectReclaim + Send>,
    /// The clock of the machine.
    pub clock: &'static dyn Clock,
    /// The channels to the command on the host, behind the standard streams.
    pub channels: &'static dyn Channels,
    /// Reports whether the free part of the kernel heap is no larger than the reserve.
    pub instruments: &'static dyn Instruments,
    /// Real time at boot, in seconds since 1970.
    pub epoch: u64,
    /// Rows and columns of the terminal.
    pub terminal_size: (u16, u16),
    /// The mount tree.
    pub mounts: Mounts<Dentry>,
    /// The number of open files of each class.
    pub open_files: OpenCounts,
    /// Limits of `/proc/sys/fs`.
    pub file_limits: FileLimits,
    /// The threads that wait for record locks.
    pub lock_waits: LockWaits<Inode>,
    /// Creates userfaultfds; `None` until the memory system calls are initialised.
    pub userfaultfds: Lock<Option<&'static dyn UserfaultMaker>>,
    /// The generator of all random numbers that programs get.
    pub random: Lock<Random>,
}

impl Vfs {
    /// Returns the current real time, in the form in which inodes record times.
    pub fn now(&self) -> Moment {
        Moment::from_nanoseconds(self.real_time())
    }

    /// Returns the real time in nanoseconds since 1970.
    pub fn real_time(&self) -> u64 {
        self.epoch * SECOND + self.clock.now()
    }
}
