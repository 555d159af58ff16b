//! What files need to know of their caller.

use super::{attributes::Moment, permission::Subject};
use crate::{context::Context, kernel::Kernel};

impl Moment {
    /// The moment that nodes record.
    #[must_use]
    pub fn now(kernel: &Kernel) -> Self {
        Self::from_nanoseconds(kernel.manifest.epoch * crate::abi::SECOND + kernel.host.now())
    }
}

impl Context<'_> {
    /// Whose rights count: every process is root's.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject::ROOT
    }

    /// The largest size that a file may grow to (`RLIMIT_FSIZE`).
    #[must_use]
    pub fn file_size_limit(&self) -> u64 {
        u64::MAX
    }

    /// Tells the caller that a file would grow beyond its limit.
    pub fn file_too_large(&self) {}

    /// Tells the caller that nobody reads what it writes.
    pub fn broken_pipe(&self) {}
}
