//! Which operations an open file supports.

/// Whether a file has a position, and whether `lseek` fails.
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
    /// Returns whether `splice` can read the file.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Reads | Self::Both)
    }

    /// Returns whether `splice` can write the file.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Writes | Self::Both)
    }
}

/// How `poll` and epolls detect changes of a file's readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// The file is always ready; `epoll` refuses it.
    Always,
    /// The kernel wakes the file's wait queues when its readiness changes.
    Queues,
    /// The kernel must query the host for the file's readiness, and the virtual machine is stopped during the query. No
    /// queue is woken when the readiness changes.
    Look,
}
