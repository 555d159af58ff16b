//! The scan period of NUMA balancing (Linux 7.2 `kernel/sched/fair.c`, `update_task_scan_period`). The period is long
//! if the pages of an address space are on the nodes that access them, or cannot be migrated.

use memwright_table::Machine;

use crate::mm::theme::Numa;

impl<M: Machine> Numa<'_, M> {
    /// Returns whether [`scan_for_hints`](Self::scan_for_hints) is due in round `round`. The caller counts the rounds,
    /// one for each minimum scan period.
    pub fn wants_hints(&self, round: u64) -> bool {
        self.space.core.pace().is_due(round)
    }

    /// Ends the scan for hints of round `round`. The hint faults since the previous scan determine the round in which
    /// the next scan is due.
    pub fn end_scan_for_hints(&self, round: u64) {
        self.space.core.pace().end_scan(round);
    }
}
