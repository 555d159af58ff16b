//! Swap devices: disks in compressed memory and the disk of the machine.

mod backing;
mod disk;
mod faults;
mod file;
mod header;
mod remove;
mod store;
mod unpack;
mod zram;

pub use disk::Disk;
pub use file::DiskFile;
pub use remove::remove;

use alloc::{string::String, sync::Arc, vec::Vec};
use backing::Backing;
use memwright_linux_abi::{Memory, errno::Errno, host::Host};
use memwright_linux_vfs::{
    changes::Changes,
    fs::disk_node::DiskNode,
    manifest::{SwapKind, SwapRequest},
};
use memwright_table::{PAGE_SIZE, TryPush};
use zram::Zram;

/// The priority of a device if the caller does not specify a priority (`DEF_SWAP_PRIO`).
pub const DEFAULT_PRIORITY: i32 = -1;

/// The disks of a machine.
#[derive(Default)]
pub struct Swaps {
    disks: Vec<Arc<Disk>>,
    /// The changes for which readers of `/proc/swaps` poll: a swap device was added or removed.
    pub changes: Changes,
}

impl Swaps {
    /// Creates the disks of a run and starts using them as swap.
    ///
    /// # Errors
    /// `ENOMEM`, `ENXIO` if the machine has no disk, `EIO` if the disk fails.
    pub fn start(
        host: &'static dyn Host,
        memory: &Memory,
        requests: &[SwapRequest],
    ) -> Result<Self, Errno> {
        let frames = memory.frames();
        if !requests.is_empty() {
            // Raise the watermarks, so that some frames are free when pages are swapped out. Compressed memory needs
            // these frames to store the pages.
            frames.low_water(2 * frames.reserve());
        }
        let mut disks: Vec<Arc<Disk>> = Vec::new();
        for request in requests {
            let wanted = u32::try_from(request.size / PAGE_SIZE as u64).unwrap_or(u32::MAX);
            let (backing, pages) = match request.kind {
                SwapKind::Zram => {
                    let zram = Zram::new(frames, wanted).map_err(|_| Errno::ENOMEM)?;
                    (Backing::Zram(zram), wanted)
                }
                SwapKind::Disk => {
                    let disk = host.disk().ok_or(Errno::ENXIO)?;
                    (Backing::Machine(disk), disk.pages())
                }
            };
            let same = |disk: &&Arc<Disk>| disk.kind() == request.kind;
            let minor = disks.iter().filter(same).count() as u32;
            let errors = memory.policy().swap_errors();
            let disk = Arc::new(Disk::new(backing, minor, pages, errors));
            disk.format(frames)?;
            if pages > 1 {
                disk.swap_on(memory, DEFAULT_PRIORITY)?;
            }
            disks.try_push(disk).map_err(|_| Errno::ENOMEM)?;
        }
        Ok(Self {
            disks,
            changes: Changes::default(),
        })
    }

    /// Returns the disks.
    #[must_use]
    pub fn disks(&self) -> &[Arc<Disk>] {
        &self.disks
    }

    /// Returns the disks as nodes of `/dev`.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "before any program runs")]
    pub fn nodes(&self) -> Vec<Arc<dyn DiskNode>> {
        let node = |disk: &Arc<Disk>| -> Arc<dyn DiskNode> { disk.clone() };
        self.disks.iter().map(node).collect()
    }

    /// Returns the path of the disk that is swap device `number`.
    #[must_use]
    #[expect(clippy::disallowed_macros, reason = "a short name")]
    pub fn path_of(&self, number: usize) -> String {
        let disk = self.disks.iter().find(|disk| disk.is_swap(number));
        disk.map_or_else(String::new, |disk| alloc::format!("/dev/{}", disk.name()))
    }

    /// Discards the data that programs wrote to disks, which frees its memory.
    pub fn clear(&self, memory: &Memory) {
        for disk in &self.disks {
            disk.clear(memory.frames());
        }
    }

    /// Returns the number of bytes of memory that the contents of all disks occupy.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.disks.iter().map(|disk| disk.stored()).sum()
    }
}
