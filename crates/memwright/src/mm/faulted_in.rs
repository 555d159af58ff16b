//! Counts and reports pages that the kernel faults in on behalf of a thread, without a trap (Linux 7.3 `mm/gup.c`,
//! `faultin_page`, and `mm/memory.c`, `mm_account_fault` without registers).

use memwright_table::Machine;

use crate::mm::core::Core;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::faulted_in::FaultedIn;
use crate::types::stats::Row;

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
