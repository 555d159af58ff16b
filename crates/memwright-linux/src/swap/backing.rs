//! What keeps the pages of a disk.

use super::{Kind, zram::Zram};
use crate::{M, errno::Errno, host::BlockDevice};
use memwright::{DeviceError, Direction, Submission, Ticket, Transfer};
use memwright_table::{FrameKind, FrameRef, Frames};

/// What keeps the pages of a disk.
#[expect(
    clippy::large_enum_variant,
    reason = "a machine has as many as disks, each in an allocation of its own"
)]
pub enum Backing {
    /// Memory, compressed.
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
    /// What kind of disk it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Zram(_) => Kind::Zram,
            Self::Machine(_) => Kind::Disk,
        }
    }

    /// Copies what it keeps at `offset` of a page.
    ///
    /// # Errors
    /// `EIO`, or `ENOMEM` without a frame to read into.
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

    /// Keeps bytes at `offset` of a page.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC` if compressed memory finds no memory, `ENOMEM` without a frame to write from.
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

    /// Begins a transfer, whose slot is the number of a page.
    pub fn submit(&self, frames: &Frames<M>, transfer: Transfer) -> Submission {
        match self {
            Self::Zram(zram) => Submission::Done(match transfer.direction {
                Direction::Out => zram.write(frames, transfer.slot, transfer.frame),
                Direction::In => zram.read(frames, transfer.slot, transfer.frame),
            }),
            Self::Machine(disk) => disk.submit(transfer),
        }
    }

    /// Waits until a transfer is over.
    ///
    /// # Errors
    /// The disk failed.
    pub fn complete(&self, ticket: Ticket) -> Result<(), DeviceError> {
        match self {
            // No transfer of its is ever under way.
            Self::Zram(_) => Err(DeviceError::Io),
            Self::Machine(disk) => disk.complete(ticket),
        }
    }

    /// A page is not needed any more.
    pub fn discard(&self, frames: &Frames<M>, page: u32) {
        match self {
            Self::Zram(zram) => zram.discard(frames, page),
            Self::Machine(_) => {}
        }
    }

    /// Bytes of memory for what it keeps.
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
            // Others have all places, and wait for no one.
            Submission::Busy => crate::sync::relax(),
        }
    }
}
