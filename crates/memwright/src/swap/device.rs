//! What a swap device is to the memory manager.

use memwright_table::{Frame, Frames, Machine};

/// Why a device did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// It failed.
    Io,
    /// It has no room for what does not compress.
    Full,
}

/// Which way a page goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the frame, which nobody writes, into the slot, instead of what that kept.
    Out,
    /// From the slot, where it stays, into the frame.
    In,
}

/// One page between a frame and a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// The slot.
    pub slot: u32,
    /// The frame.
    pub frame: Frame,
}

/// What a device calls a transfer that is under way.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the device keeps what it knows of the transfer until that is completed"]
pub struct Ticket(pub u32);

/// What became of a transfer that was submitted.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a transfer may be under way, or not even begun"]
pub enum Submission {
    /// It is over, as [`SwapDevice::complete`] says.
    Done(Result<(), DeviceError>),
    /// It is under way.
    Pending(Ticket),
    /// It was not begun: too many are under way.
    Busy,
}

/// Something that keeps pages outside of the frames that programs use.
///
/// A transfer is submitted and completed. In between others may be submitted, by the same caller or by any other, and
/// they may end in any order. A device that never makes anybody wait answers each with [`Submission::Done`].
///
/// The methods are called with the locks of page tables held, and take no lock of an earlier rank than
/// [`Rank::Swap`](memwright_table::sync::Rank::Swap). A slot takes part in one transfer at a time, and is not discarded
/// meanwhile. Who submits several at a time completes some of his own when the device is busy, so that it is not for
/// ever.
pub trait SwapDevice<M: Machine>: Send + Sync {
    /// How many pages it can keep.
    fn slots(&self) -> u32;

    /// Begins a transfer, and does not wait for anything. The frame is the device's until the transfer is over.
    fn submit(&self, frames: &Frames<M>, transfer: Transfer) -> Submission;

    /// Waits until a transfer is over: by [`Machine::relax`], or the way that the device knows. Called once for each
    /// ticket, with no device's lock held.
    ///
    /// # Errors
    /// On the way out, nothing is kept in the slot. On the way in, what is in the frame is nothing to be shown to
    /// anybody, and the slot keeps what it kept.
    fn complete(&self, frames: &Frames<M>, ticket: Ticket) -> Result<(), DeviceError>;

    /// The page in `slot`, if there is one, is not needed any more.
    fn discard(&self, frames: &Frames<M>, slot: u32);

    /// Bytes of memory that the pages in it take.
    fn stored(&self) -> u64 {
        0
    }
}
