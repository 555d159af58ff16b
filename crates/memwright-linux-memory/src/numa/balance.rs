//! NUMA balancing: a scan that sets NUMA hints, so that pages migrate to the nodes of the CPUs that access them (Linux
//! 7.2 `kernel/sched/fair.c`, `task_tick_numa`).
//!
//! Like the scan for huge pages, this scan has a deadline instead of a thread. Each time that the deadline passes, the
//! scan sets NUMA hints in a part of the memory of each process that is due. A process is due less often if its hint
//! faults were mostly on local pages, or if a page could not be migrated. No deadline is set on a machine with one
//! node, or while balancing is off.

use crate::hand::Hand;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use memwright_linux_abi::{Memory, abi::MILLISECOND};
use memwright_linux_sched::{
    scheduler::{Expiry, TimerKey},
    time::Daemon,
};
use memwright_linux_tasks::process::Tasks;

/// The number of pages in a MiB.
const MEBIBYTE: u64 = 256;

/// The scan: its position, its settings, and whether it is on.
pub struct Balancing {
    is_on: AtomicBool,
    /// The time between two steps in milliseconds (`sysctl_numa_balancing_scan_period_min`).
    period: AtomicU32,
    /// The number of MiB that one step scans (`sysctl_numa_balancing_scan_size`).
    size: AtomicU32,
    next: Daemon,
    memory: Arc<Memory>,
    tasks: &'static Tasks,
    hand: Hand,
    /// The number of steps so far.
    round: AtomicU64,
}

impl Balancing {
    /// Creates the scan. Balancing is on if there are several nodes.
    #[must_use]
    pub fn new(memory: Arc<Memory>, tasks: &'static Tasks) -> Arc<Self> {
        let nodes = memory.frames().topology().nodes();
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            is_on: AtomicBool::new(nodes > 1),
            period: AtomicU32::new(1000),
            size: AtomicU32::new(256),
            next: Daemon::new(own.clone(), tasks.scheduler),
            memory,
            tasks,
            hand: Hand::default(),
            round: AtomicU64::new(0),
        })
    }

    /// Returns whether balancing is on (`/proc/sys/kernel/numa_balancing`).
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Turns balancing on or off. NUMA hints that are set when it is turned off still cause one fault each.
    pub fn turn(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
        self.wake();
    }

    /// Returns the time between two steps in milliseconds.
    pub fn period(&self) -> u32 {
        self.period.load(Ordering::Relaxed)
    }

    /// Sets the time between two steps in milliseconds.
    pub fn set_period(&self, milliseconds: u32) {
        self.period.store(milliseconds, Ordering::Relaxed);
        self.wake();
    }

    /// Returns the number of MiB that one step scans.
    pub fn size(&self) -> u32 {
        self.size.load(Ordering::Relaxed)
    }

    /// Sets the number of MiB that one step scans.
    pub fn set_size(&self, mebibytes: u32) {
        self.size.store(mebibytes, Ordering::Relaxed);
    }

    /// Sets the time of the next step, or clears it if balancing is off.
    pub fn wake(&self) {
        let nodes = self.memory.frames().topology().nodes();
        self.next.set(|| {
            let goes_on = self.is_on() && nodes > 1;
            goes_on.then_some(u64::from(self.period()) * MILLISECOND)
        });
    }
}

impl Expiry for Balancing {
    fn expire(self: Arc<Self>, _key: TimerKey) {
        if self.is_on() {
            let round = self.round.fetch_add(1, Ordering::Relaxed) + 1;
            let mut budget = u64::from(self.size()) * MEBIBYTE;
            self.hand.go_on(self.tasks, |space, page| {
                if !space.numa().wants_hints(round) {
                    return None;
                }
                let rest = space.numa().scan_for_hints(page, &mut budget);
                if rest.is_none() {
                    space.numa().end_scan_for_hints(round);
                }
                rest
            });
        }
        self.wake();
    }
}
