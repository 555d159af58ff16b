//! Background collapse of base pages into huge pages (Linux 7.2 `mm/khugepaged.c`).
//!
//! The scan has no thread. It has a deadline, and the CPU on which the deadline passes scans the next pages, whether
//! that CPU is idle or runs a program. So the scan progresses even if all CPUs are busy. While huge pages are disabled
//! for all areas, no deadline is set.

use crate::hand::Hand;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use memwright::Scanned;
use memwright_linux_abi::{Memory, abi::MILLISECOND};
use memwright_linux_sched::{
    scheduler::{Expiry, TimerKey},
    time::Daemon,
};
use memwright_linux_tasks::process::Tasks;

/// The position of the scan and the time of its next step.
pub struct HugeScan {
    /// Whether huge pages have ever been enabled for an area.
    wanted: AtomicBool,
    next: Daemon,
    memory: Arc<Memory>,
    tasks: &'static Tasks,
    hand: Hand,
    /// The number of pages left to scan in a pass that was suspended because no huge page could be allocated; 0 if no
    /// pass is suspended.
    left: AtomicU64,
}

impl HugeScan {
    /// Creates the scan, which does not run yet.
    #[must_use]
    pub fn new(memory: Arc<Memory>, tasks: &'static Tasks) -> Arc<Self> {
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            wanted: AtomicBool::new(false),
            next: Daemon::new(own.clone(), tasks.scheduler),
            memory,
            tasks,
            hand: Hand::default(),
            left: AtomicU64::new(0),
        })
    }

    /// Records that huge pages were enabled for an area. The first call starts the scan.
    pub fn want(&self) {
        if !self.wanted.swap(true, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Sets the time of the next step again. Called after a setting has changed.
    pub fn wake(&self) {
        let memory = &self.memory;
        self.next.set(|| {
            let goes_on = memory.may_collapse(self.wanted.load(Ordering::Relaxed));
            let settings = &memory.huge().scan;
            let sleep = match self.left.load(Ordering::Relaxed) {
                0 => &settings.sleep,
                _ => &settings.allocation_sleep,
            };
            let sleep = sleep.load(Ordering::Relaxed);
            goes_on.then_some(u64::from(sleep.max(1)) * MILLISECOND)
        });
    }

    /// Scans as many pages as the settings request for one pass. If no huge page can be allocated, the pass is
    /// suspended. If an allocation fails again after the pass has resumed, the pass ends (`khugepaged_do_scan`).
    fn look(&self) {
        let settings = &self.memory.huge().scan;
        let left = self.left.swap(0, Ordering::Relaxed);
        let has_slept = left > 0;
        let mut budget = match left {
            0 => settings.pages.load(Ordering::Relaxed).into(),
            left => left,
        };
        let mut failed = false;
        let is_over = self.hand.go_on(self.tasks, |space, page| {
            match space.huge_pages().scan(page, &mut budget) {
                Scanned::Until(next) => Some(next),
                Scanned::End => None,
                Scanned::NoFrames(next) => {
                    failed = true;
                    Some(next)
                }
            }
        });
        if failed && !has_slept {
            self.left.store(budget.max(1), Ordering::Relaxed);
        }
        if is_over {
            settings.rounds.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Expiry for HugeScan {
    fn expire(self: Arc<Self>, _key: TimerKey) {
        if self.memory.may_collapse(true) {
            self.look();
        }
        self.wake();
    }
}
