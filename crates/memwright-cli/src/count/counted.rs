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
    /// The counts of the run on each CPU; empty if the guest has one CPU, or if they are not known.
    pub by_cpu: Vec<Counts>,
    /// The interprocessor interrupts that were sent in the run; empty if the guest has one CPU.
    pub sent: Vec<Sent>,
    /// The counts of each region that the program marked, by number; `None` without the plugin, which alone detects
    /// marks.
    pub regions: Option<Vec<Region>>,
    /// The regions of a kernel that runs alone that began before its handlers were known. No profile of them is
    /// possible.
    pub unhandled: BTreeSet<u16>,
    /// The page faults of the run; `None` if they are not collected.
    pub faults: Option<FaultLog>,
}
