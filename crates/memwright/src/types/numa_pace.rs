//! The scan period of NUMA balancing (Linux 7.2 `kernel/sched/fair.c`, `update_task_scan_period`).

use core::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of rounds from one scan to the next (`sysctl_numa_balancing_scan_period_max`). A round lasts for
/// the minimum scan period. The caller counts the rounds.
const LONGEST: u64 = 60;

/// The hint faults of an address space since its last scan, and the round of its next scan.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    local: AtomicU64,
    remote: AtomicU64,
    stayed: AtomicU64,
    /// The number of rounds from the last scan to the next; 0 before the first scan.
    wait: AtomicU64,
    /// The round of the next scan.
    due: AtomicU64,
}

/// The result of a hint fault: where its page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The page is on the node of the faulting CPU.
    Local,
    /// The page was on another node, and no attempt to migrate it failed.
    Remote,
    /// The page is on another node, and could not be migrated.
    Stayed,
}

impl Pace {
    /// Counts a hint fault.
    pub(crate) fn note(&self, told: Told) {
        let count = match told {
            Told::Local => &self.local,
            Told::Remote => &self.remote,
            Told::Stayed => &self.stayed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_due(&self, round: u64) -> bool {
        self.due.load(Ordering::Relaxed) <= round
    }

    /// Ends the scan of round `round`, and sets the round of the next scan.
    pub(crate) fn end_scan(&self, round: u64) {
        let [local, remote, stayed] =
            [&self.local, &self.remote, &self.stayed].map(|count| count.swap(0, Ordering::Relaxed));
        let wait = wait_after(self.wait.load(Ordering::Relaxed), local, remote, stayed);
        self.wait.store(wait, Ordering::Relaxed);
        self.due.store(round + wait, Ordering::Relaxed);
    }
}

/// Returns the number of rounds from a scan to the next. `last` is the previous such number, 0 before the first scan.
/// The other arguments count the hint faults since the previous scan. The number doubles if at least 70% of the pages
/// were local, if a page could not be migrated, or if there was no hint fault. Otherwise it halves.
fn wait_after(last: u64, local: u64, remote: u64, stayed: u64) -> u64 {
    let told = local + remote + stayed;
    let idle = told == 0 || stayed > 0 || local * 10 >= told * 7;
    match (last, idle) {
        (0, _) => 1,
        (_, true) => (last * 2).min(LONGEST),
        (_, false) => (last / 2).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_nothing_to_gain_is_asked_less_often() {
        #[rustfmt::skip]
        let rows = [
            ("the first scan",           0,  0,  0,  0, 1),
            ("nothing was used",         1,  0,  0,  0, 2),
            ("most are where they are",  2,  7,  3,  0, 4),
            ("many are elsewhere",       4,  6,  4,  0, 2),
            ("all are elsewhere",        1,  0,  9,  0, 1),
            ("they cannot move",         2,  0,  8,  1, 4),
            ("seldom at most",          60, 10,  0,  0, 60),
        ];
        for (name, last, local, remote, stayed, wait) in rows {
            assert_eq!(wait_after(last, local, remote, stayed), wait, "{name}");
        }
    }

    #[test]
    fn the_next_scan_is_due_when_its_round_has_come() {
        let pace = Pace::default();
        assert!(pace.is_due(1));
        pace.end_scan(1);
        assert!(!pace.is_due(1) && pace.is_due(2));
        pace.note(Told::Local);
        pace.end_scan(2);
        assert!(!pace.is_due(3) && pace.is_due(4));
        pace.note(Told::Remote);
        pace.end_scan(4);
        assert!(pace.is_due(5));
    }
}
