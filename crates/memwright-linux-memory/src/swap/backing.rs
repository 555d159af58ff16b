//! The storage behind a disk.

use super::zram::Zram;
use memwright::{DeviceError, Direction, Submission, Ticket, Transfer};
use memwright_linux_abi::{M, errno::Errno, host::BlockDevice};
use memwright_linux_base::sync;
use memwright_linux_vfs::manifest::SwapKind;
use memwright_table::{FrameKind, FrameRef, Frames};

/// The storage behind a disk.
#[expect(
    clippy::large_enum_variant,
    reason = "a machine has as many as disks, each in an allocation of its own"
)]
pub enum Backing {
    /// Compressed memory.
    Zram(Zram),
    /// The disk of the machine.
    Machine(&'static dyn BlockDevice),
}

fn errno(error: DeviceError) -> Errno {
    match error {
        DeviceError::Io => Errno::EIO,
        DeviceError::Full => Errno::ENOSPC,
    }
}

impl Backing {
    /// Returns the kind of storage.
    pub fn kind(&self) -> SwapKind {
        match self {
            Self::Zram(_) => SwapKind::Zram,
            Self::Machine(_) => SwapKind::Disk,
        }
    }

    /// Reads bytes at `offset` in a page.
    ///
    /// # Errors
    /// `EIO`, or `ENOMEM` if there is no frame into which to read.
    pub fn get(
        &self,
        frames: &Frames<M>,
        page: u32,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), Errno> {
        match self {
            Self::Zram(zram) => zram.get(frames, page, offset, bytes).map_err(errno),
            Self::Machine(disk) => {
                let buffer = buffer(frames)?;
                transfer(*disk, Direction::In, page, &buffer)?;
                frames.read(buffer.frame(), offset, bytes);
                Ok(())
            }
        }
    }

    /// Writes bytes at `offset` in a page.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC` if there is no memory for the compressed page, `ENOMEM` if there is no frame from which to
    /// write.
    pub fn put(
        &self,
        frames: &Frames<M>,
        page: u32,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        match self {
            Self::Zram(zram) => zram.put(frames, page, offset, bytes).map_err(errno),
            Self::Machine(disk) => {
                let buffer = buffer(frames)?;
                transfer(*disk, Direction::In, page, &buffer)?;
                frames.write(buffer.frame(), offset, bytes);
                transfer(*disk, Direction::Out, page, &buffer)
            }
        }
    }

    /// Returns the maximum number of transfers that are pending at a time.
    pub fn most_pending(&self) -> usize {
        match self {
            Self::Zram(_) => 0,
            Self::Machine(disk) => disk.most_pending(),
        }
    }

    /// Starts a transfer. The slot of the transfer is the number of a page of the disk.
    pub fn submit(&self, frames: &Frames<M>, transfer: Transfer) -> Submission {
        match self {
            Self::Zram(zram) => Submission::Done(match transfer.direction {
                Direction::Out => zram.write(frames, transfer.slot, transfer.frame),
                Direction::In => zram.read(frames, transfer.slot, transfer.frame),
            }),
            Self::Machine(disk) => disk.submit(transfer),
        }
    }

    /// Waits for a transfer to complete.
    ///
    /// # Errors
    /// `DeviceError` if the disk reports an error.
    pub fn complete(&self, ticket: Ticket) -> Result<(), DeviceError> {
        match self {
            // Transfers to and from compressed memory complete in `submit`, so there is no transfer for which to wait.
            Self::Zram(_) => Err(DeviceError::Io),
            Self::Machine(disk) => disk.complete(ticket),
        }
    }

    /// Frees the memory that stores a page whose contents are no longer needed.
    pub fn discard(&self, frames: &Frames<M>, page: u32) {
        match self {
            Self::Zram(zram) => zram.discard(frames, page),
            Self::Machine(_) => {}
        }
    }

    /// Returns the number of bytes of memory that the contents of the disk occupy.
    pub fn stored(&self) -> u64 {
        match self {
            Self::Zram(zram) => zram.stored(),
            Self::Machine(_) => 0,
        }
    }
}

fn buffer(frames: &Frames<M>) -> Result<FrameRef<'_, M>, Errno> {
    frames
        .allocate(0, FrameKind::Slab)
        .map_err(|_| Errno::ENOMEM)
}

/// Copies one page between a disk and a frame.
fn transfer(
    disk: &dyn BlockDevice,
    direction: Direction,
    page: u32,
    buffer: &FrameRef<'_, M>,
) -> Result<(), Errno> {
    let transfer = Transfer {
        direction,
        slot: page,
        frame: buffer.frame(),
    };
    loop {
        match disk.submit(transfer) {
            Submission::Done(result) => return result.map_err(errno),
            Submission::Pending(ticket) => return disk.complete(ticket).map_err(errno),
            // The transfers of other threads occupy all descriptors of the disk's queue. Wait for them; they complete
            // without this thread.
            Submission::Busy => sync::relax(),
        }
    }
}
