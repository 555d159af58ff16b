//! Recording a change of several runs of pages at once.

use super::{FlushPolicy, Gather};
use crate::addr::{PageRange, PageSize};
use crate::entry::Change;
use crate::machine::Machine;

impl<M: Machine> Gather<'_, M> {
    /// Records `change` for the entries that map the 4 KiB pages in `runs`, like
    /// [`record_entries`](Self::record_entries) for each run. `entries` is the total number of these entries.
    #[inline]
    pub(crate) fn record_runs(
        &mut self,
        runs: &[PageRange],
        change: Change,
        elided: bool,
        entries: u64,
    ) {
        let size = PageSize::Size4K;
        let is_current = matches!(self.policy, FlushPolicy::ElideGrow);
        if let [first, _, ..] = runs {
            if is_current && change.needs_remote() && self.shrunk.is_many() {
                // All translations are invalidated, so only the number of pages matters.
                self.record_entries(first.start, size, change, elided, entries);
                return;
            }
        }
        for run in runs {
            self.record_entries(run.start, size, change, elided, run.len());
        }
    }
}
