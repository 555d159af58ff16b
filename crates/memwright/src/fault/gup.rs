//! Faults without a trap: pages that the kernel faults in on behalf of a thread (Linux 7.3 `mm/gup.c`, `faultin_page`,
//! and `mm/memory.c`, `mm_account_fault` without registers).

use memwright_table::Machine;

use super::FaultKind;
use crate::error::FaultError;
use crate::space::Core;
use crate::stats::Row;

/// Pages that were faulted in without a trap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultedIn {
    /// Pages for which no device was read (`ru_minflt`).
    pub minor: u64,
    /// Pages that were read from a device (`ru_majflt`).
    pub major: u64,
    /// Pages that could not be provided.
    pub(crate) failed: u64,
    /// Pages that were mapped to the zero page.
    pub(crate) zero: u64,
}

impl FaultedIn {
    /// Counts the outcome of one page.
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
    /// Counts `pages` for the thread that runs on the calling CPU.
    fn faulted_in(&self, pages: FaultedIn);
}

impl<M: Machine> Core<M> {
    /// Counts one fault without a trap, and returns `outcome`.
    pub(crate) fn count_page_faulted_in(
        &self,
        outcome: Result<FaultKind, FaultError>,
    ) -> Result<FaultKind, FaultError> {
        let mut pages = FaultedIn::default();
        pages.note(outcome);
        self.count_faulted_in(pages);
        outcome
    }

    /// Counts faults without a trap, and reports them to the fault sink.
    pub(crate) fn count_faulted_in(&self, pages: FaultedIn) {
        if pages == FaultedIn::default() {
            return;
        }
        let memory = &*self.memory;
        self.note_uncounted(self.cpu(), pages.zero);
        memory.count(Row::FaultGup, pages.minor + pages.major);
        memory.count(Row::FaultGupMajor, pages.major);
        memory.count(Row::FaultFailed, pages.failed);
        memory.tell_faulted_in(pages);
    }
}
