//! The readiness of a file, as `poll` reports it.

use linux_raw_sys::general as raw;
use memwright_linux_base::flags;

flags! {
    /// Which operations on a file do not block, and which events are pending: the bits of `poll`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Readiness: u32 {
        /// A read does not block.
        const READ = raw::POLLIN | raw::POLLRDNORM;
        /// A write does not block.
        const WRITE = raw::POLLOUT | raw::POLLWRNORM;
        /// Priority data or an exceptional event is pending.
        const PRIORITY = raw::POLLPRI;
        /// An error is pending. For the write end of a pipe, there is no reader.
        const ERROR = raw::POLLERR;
        /// The peer has hung up.
        const HANGUP = raw::POLLHUP;
        /// The peer has shut down writing.
        const READ_HANGUP = raw::POLLRDHUP;
    }
}

impl Readiness {
    /// Returns whether a waiter for these bits must be on the readers' queue. Errors and hang-ups are always reported,
    /// and wake that queue too. A waiter for no bits must therefore be on that queue.
    #[must_use]
    pub const fn concerns_reading(self) -> bool {
        let read = Self::READ.union(Self::READ_HANGUP).union(Self::PRIORITY);
        !self.concerns_writing() || self.intersects(read)
    }

    /// Returns whether a waiter for these bits must be on the writers' queue.
    #[must_use]
    pub const fn concerns_writing(self) -> bool {
        self.intersects(Self::WRITE)
    }
}
