//! The readiness of a file: what can be done with it without blocking.

use linux_raw_sys::general as raw;
use memwright_linux_base::flags;

flags! {
    /// What can be done with a file without blocking: the bits of `poll`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Readiness: u32 {
        /// A read does not block.
        const READ = raw::POLLIN | raw::POLLRDNORM;
        /// A write does not block.
        const WRITE = raw::POLLOUT | raw::POLLWRNORM;
        /// Priority data or an exceptional event is pending.
        const PRIORITY = raw::POLLPRI;
        /// An error is pending; for a pipe, there are no readers.
        const ERROR = raw::POLLERR;
        /// The peer has hung up.
        const HANGUP = raw::POLLHUP;
        /// The peer has shut down writing.
        const READ_HANGUP = raw::POLLRDHUP;
    }
}

impl Readiness {
    /// Returns whether a waiter for these bits must be on the readers' queue. Errors and hang-ups, which are always
    /// reported, wake that queue too.
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
