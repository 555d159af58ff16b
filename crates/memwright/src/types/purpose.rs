//! The purpose of a swap-in, and the result of its reads.

use crate::types::access::{Access, FaultKind};
use crate::types::error::FaultError;

/// The purpose of a swap-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An access that the rights of the area must permit.
    Access(Access),
    /// An access that is not limited by the rights of the area.
    Forced(Access),
    /// No access. The caller is swapoff, or a collapse.
    Unasked,
}

/// The result of completing the reads that a fault has put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// The fault has put off no read: the page is busy for another reason.
    Nothing,
    /// The reads are complete. The caller looks up the page that faulted again.
    Again,
    /// The page that faulted was mapped, or its read failed.
    Over(Result<FaultKind, FaultError>),
}
