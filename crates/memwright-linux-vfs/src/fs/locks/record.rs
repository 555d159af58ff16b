//! A lock on a range of a file, and the holder of a lock.

/// The holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A process, by its id: the locks of `F_SETLK`.
    Process(u64),
    /// An open file, by its identity: the locks of `F_OFD_SETLK` and `flock`.
    OpenFile(u64),
}

/// The strength of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// The lock does not conflict with other shared locks.
    Shared,
    /// The lock conflicts with every lock of another holder.
    Exclusive,
}

/// A held or requested lock on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The process or open file that holds or requests the lock.
    pub holder: Holder,
    /// Shared or exclusive.
    pub strength: Strength,
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte; `u64::MAX` for a lock up to the end of the file, even if the file grows.
    pub last: u64,
}
