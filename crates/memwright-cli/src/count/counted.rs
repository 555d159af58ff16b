//! The results of counting a guest.

use std::collections::BTreeSet;

use crate::count::fault_log::FaultLog;
use crate::model::counts::Counts;
use crate::model::region::Region;
use crate::model::sent::Sent;

/// The counts of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The counts of the program's run, on all CPUs.
    pub run: Counts,
    /// The counts of the run on each CPU. Empty if the guest has one CPU, or if the counts by CPU are not known.
    pub by_cpu: Vec<Counts>,
    /// The interprocessor interrupts that were sent in the run; empty if the guest has one CPU.
    pub sent: Vec<Sent>,
    /// The counts of each region that the program marked, by number. `None` without the plugin, because QEMU's log
    /// alone does not show marks.
    pub regions: Option<Vec<Region>>,
    /// On a kernel that runs alone: the regions that began before the kernel's handlers were known. These regions
    /// cannot be profiled.
    pub unhandled: BTreeSet<u16>,
    /// The page faults of the run; `None` if they are not collected.
    pub faults: Option<FaultLog>,
}
