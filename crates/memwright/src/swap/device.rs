//! The interface of a swap device.

use memwright_table::{Frame, Frames, Machine};

use crate::types::error_text::error_text;

/// The reason why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// An I/O error.
    Io,
    /// The device has no room for the page, for example because zram finds no free memory.
    Full,
}

error_text!(DeviceError {
    Self::Io => "I/O error on the swap device";
    Self::Full => "the swap device has no room for the page";
});

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Swap-out: from the frame, which is not written meanwhile, into the slot, whose contents are replaced.
    Out,
    /// Swap-in: from the slot, which keeps its contents, into the frame.
    In,
}

/// The transfer of one page between a frame and a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Whether the page is read or written.
    pub direction: Direction,
    /// The slot on the device.
    pub slot: u32,
    /// The frame that is read into, or written from.
    pub frame: Frame,
}

/// The number by which a device identifies a pending transfer.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the device keeps what it knows of the transfer until that is completed"]
pub struct Ticket(pub u32);

/// The result of submitting a transfer.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a transfer may be under way, or not even begun"]
pub enum Submission {
    /// The transfer is finished, with the result that [`SwapDevice::complete`] would return.
    Done(Result<(), DeviceError>),
    /// The transfer is pending.
    Pending(Ticket),
    /// The transfer was not begun, because [`SwapDevice::most_pending`] transfers are pending.
    Busy,
}

/// A device that stores swapped-out pages outside the frames that programs use.
///
/// A transfer is first submitted and then completed. In between, the same caller and other callers may submit more
/// transfers, and these may finish in any order. A device that finishes each transfer in `submit` always returns
/// [`Submission::Done`].
///
/// The methods can be called with the locks of page tables held, and take no lock of a rank before
/// [`Rank::Swap`](memwright_table::sync::Rank::Swap). The exception is [`complete`](Self::complete) for a swap-in: it
/// is called with no lock held, so that it may sleep (rule: wait-without-locks). Swap-outs can be completed under
/// locks. Several swap-ins may read a slot at a time. A slot that is being written takes part in no other transfer, and
/// a slot is not discarded during a transfer.
///
/// If the device is busy, a swap-in by a fault is repeated later. Other callers complete one of their own pending
/// transfers and retry. If they have none, they retry until the device is no longer busy. A device whose `complete`
/// sleeps must therefore finish transfers without the sleeping thread, for example in its interrupt handler. If a
/// device stays busy although none of its transfers is pending, these callers wait without end.
pub trait SwapDevice<M: Machine>: Send + Sync {
    /// Returns the number of pages that the device can store. For each of them, used or not,
    /// [`Memory::add_swap`](crate::Memory::add_swap) allocates 8 bytes and 1 bit of the heap, and 2 bytes more once
    /// there is a memcg.
    fn slots(&self) -> u32;

    /// Returns the maximum number of transfers that are pending at a time. `submit` returns [`Submission::Busy`]
    /// exactly while this number is reached. The maximum is 0 for a device that always returns [`Submission::Done`]. A
    /// debug build panics if such a device returns another value.
    fn most_pending(&self) -> usize;

    /// Begins a transfer, without waiting. The frame belongs to the device until the transfer has finished.
    fn submit(&self, frames: &Frames<M>, transfer: Transfer) -> Submission;

    /// Waits until a transfer has finished, by [`relax`](memwright_table::sync::relax) or by a wait of the device's
    /// own. Called once for each ticket, while no lock of a device is held, and for a swap-in while no lock at all is
    /// held.
    ///
    /// # Errors
    /// The transfer failed. After a failed swap-out, the slot stores nothing. After a failed swap-in, the contents of
    /// the frame are undefined and must not reach a program, and the slot keeps its contents.
    fn complete(&self, frames: &Frames<M>, ticket: Ticket) -> Result<(), DeviceError>;

    /// Drops the page in `slot`, if there is one.
    fn discard(&self, frames: &Frames<M>, slot: u32);

    /// Returns the number of bytes of memory that the stored pages take.
    fn stored(&self) -> u64 {
        0
    }
}

/// The use of a device, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// The number that identifies the device.
    pub number: usize,
    /// The number of the device's slots.
    pub slots: u32,
    /// The number of the device's slots in use.
    pub used: u32,
    /// The priority: devices with a higher priority are filled first.
    pub priority: i32,
    /// The number of bytes of memory that the stored pages take.
    pub stored: u64,
}
