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

/// Something that keeps pages outside of the frames that programs use.
///
/// The methods are called with the locks of page tables held, and take no lock of an earlier rank than
/// [`Rank::Swap`](memwright_table::sync::Rank::Swap). A slot is written, read and discarded by one caller at a
/// time.
pub trait SwapDevice<M: Machine>: Send + Sync {
    /// How many pages it can keep.
    fn slots(&self) -> u32;

    /// Keeps the page in `frame`, which nobody writes, in `slot`, instead of what it kept there.
    ///
    /// # Errors
    /// Nothing is kept in the slot.
    fn write(&self, frames: &Frames<M>, slot: u32, frame: Frame) -> Result<(), DeviceError>;

    /// Fills `frame` with the page in `slot`, which stays there.
    ///
    /// # Errors
    /// What is in the frame is nothing to be shown to anybody.
    fn read(&self, frames: &Frames<M>, slot: u32, frame: Frame) -> Result<(), DeviceError>;

    /// The page in `slot`, if there is one, is not needed any more.
    fn discard(&self, frames: &Frames<M>, slot: u32);

    /// Bytes of memory that the pages in it take.
    fn stored(&self) -> u64 {
        0
    }
}
