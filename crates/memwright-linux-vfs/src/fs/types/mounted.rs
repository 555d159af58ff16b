//! The state of a file system that a program mounted: a part that all types have, and a part that depends on the type.

use crate::fs::{
    hugetlbfs::{Hugetlbfs, HugetlbfsOptions},
    permission::Owner,
    tmpfs::{MountFlags, Tmpfs},
};
use alloc::vec::Vec;
use core::{
    fmt,
    sync::atomic::{AtomicU32, Ordering},
};
use memwright_linux_abi::{Memory, errno::Errno};

/// The type of a file system that a program mounted, and the state that depends on the type.
pub enum Files {
    /// A tmpfs.
    Tmpfs(Tmpfs),
    /// A hugetlbfs.
    Hugetlbfs(Hugetlbfs),
}

/// The state of a file system that a program mounted.
pub struct Mounted {
    /// The mount flags.
    flags: AtomicU32,
    /// The argument `source` of `mount`, which `/proc/mounts` shows.
    pub source: Vec<u8>,
    /// The type and its state.
    pub files: Files,
}

impl Mounted {
    /// Creates the state of a new mount.
    #[must_use]
    pub const fn new(files: Files, flags: MountFlags, source: Vec<u8>) -> Self {
        Self {
            flags: AtomicU32::new(flags.bits()),
            source,
            files,
        }
    }

    /// Returns the mount flags.
    #[must_use]
    pub fn flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Sets the mount flags.
    pub fn set_flags(&self, flags: MountFlags) {
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }

    /// Returns the permissions and the owner of the root directory.
    #[must_use]
    pub fn root(&self) -> (u32, Owner) {
        match &self.files {
            Files::Tmpfs(tmpfs) => {
                let options = tmpfs.options();
                (options.permissions, options.owner)
            }
            Files::Hugetlbfs(hugetlbfs) => {
                let options = hugetlbfs.options;
                (options.permissions, options.owner)
            }
        }
    }

    /// Returns the limit on inodes; 0 for no limit.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        match &self.files {
            Files::Tmpfs(tmpfs) => tmpfs.options().nodes,
            Files::Hugetlbfs(hugetlbfs) => hugetlbfs.options.nodes.unwrap_or(0),
        }
    }

    /// Applies the options `text` of a remount, while there are `nodes` inodes. Returns the new limit on inodes. For
    /// hugetlbfs, only checks the options, because Linux has no `reconfigure` for it. The caller serialises changes.
    ///
    /// # Errors
    /// `EINVAL` for an invalid option or limit. The options are unchanged after an error.
    pub fn change(&self, memory: &Memory, text: &[u8], nodes: u64) -> Result<u64, Errno> {
        match &self.files {
            Files::Tmpfs(tmpfs) => tmpfs.change(memory, text, nodes),
            Files::Hugetlbfs(hugetlbfs) => {
                let pool = memory.frames().pool();
                let pages = pool.total - pool.surplus;
                HugetlbfsOptions::parse(pages, hugetlbfs.options.owner, text)?;
                Ok(self.nodes())
            }
        }
    }

    /// Writes the options for `/proc/mounts`, each preceded by a comma. The machine has `total` pages of memory.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn show(&self, total: u64, out: &mut dyn fmt::Write) -> fmt::Result {
        match &self.files {
            Files::Tmpfs(tmpfs) => tmpfs.options().show(total, out),
            Files::Hugetlbfs(hugetlbfs) => hugetlbfs.options.show(out),
        }
    }
}
