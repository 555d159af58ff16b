//! Reports of pages that the kernel faulted in on behalf of a thread.

use crate::types::access::FaultKind;
use crate::types::error::FaultError;

/// Counts of pages that the kernel faulted in without a trap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultedIn {
    /// The number of pages that were faulted in without a read from a device (`ru_minflt`).
    pub minor: u64,
    /// The number of pages that were read from a device (`ru_majflt`).
    pub major: u64,
    /// The number of pages that could not be provided.
    pub failed: u64,
    /// The number of pages for which the zero page was mapped.
    pub(crate) zero: u64,
}

impl FaultedIn {
    /// Counts one page according to `outcome`, the result of its fault.
    pub(crate) fn note(&mut self, outcome: Result<FaultKind, FaultError>) {
        self.zero += u64::from(outcome == Ok(FaultKind::ZeroPage));
        match outcome {
            Ok(kind) if kind.is_major() => self.major += 1,
            Ok(_) => self.minor += 1,
            Err(error) => self.failed += u64::from(error.is_failure()),
        }
    }
}

/// Receives counts of pages faulted in without a trap. It is called with locks held, and must neither call back into
/// the memory manager nor sleep.
pub trait FaultSink: Sync {
    /// Adds `pages` to the counts of the thread that runs on the calling CPU.
    fn faulted_in(&self, pages: FaultedIn);
}
