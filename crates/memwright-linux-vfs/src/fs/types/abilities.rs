//! What files of a kind support.

/// How a file treats positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// The file has a position: `lseek`, `pread64` and `pwrite64` work.
    Kept,
    /// The file has no position; `lseek` succeeds without effect (`noop_llseek` of Linux 7.2).
    Ignored,
    /// The file has no position; `lseek` fails.
    Refused,
}

/// What `splice` and `sendfile` support for a file (`splice_read` and `splice_write` of Linux's `struct
/// file_operations`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splices {
    /// Nothing.
    Neither,
    /// Reading.
    Reads,
    /// Writing.
    Writes,
    /// Reading and writing.
    Both,
}

impl Splices {
    /// Returns whether it can be read.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Reads | Self::Both)
    }

    /// Returns whether it can be written.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Writes | Self::Both)
    }
}

/// How changes of a file's readiness are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// The file is always ready; `epoll` refuses it.
    Always,
    /// The kernel wakes the file's queues when its readiness changes.
    Queues,
    /// The kernel must poll the host for the file's readiness, during which the machine is stopped. No queue is woken
    /// when the readiness changes.
    Look,
}
