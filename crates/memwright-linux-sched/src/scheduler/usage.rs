//! Counters of the resources that a thread or process uses.

use core::sync::atomic::{AtomicU64, Ordering};

/// Counters of the resources that a thread, the exited threads of a process, or the reaped children of a process have
/// used.
#[derive(Debug, Default)]
pub struct Usage {
    /// Time in user mode, in nanoseconds.
    pub user: AtomicU64,
    /// Time in the kernel, in nanoseconds.
    pub system: AtomicU64,
    /// Page faults resolved without I/O.
    pub minor_faults: AtomicU64,
    /// Page faults that needed I/O.
    pub major_faults: AtomicU64,
    /// Voluntary context switches.
    pub voluntary: AtomicU64,
    /// Involuntary context switches.
    pub involuntary: AtomicU64,
    /// Peak resident memory in KiB.
    pub resident_peak: AtomicU64,
}

/// A snapshot of [`Usage`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct UsageSnapshot {
    /// Nanoseconds in user mode.
    pub user: u64,
    /// Nanoseconds in the kernel.
    pub system: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
    /// Peak resident KiB.
    pub resident_peak: u64,
}

impl Usage {
    /// Takes a snapshot of the counters.
    pub fn snapshot(&self) -> UsageSnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UsageSnapshot {
            user: get(&self.user),
            system: get(&self.system),
            minor_faults: get(&self.minor_faults),
            major_faults: get(&self.major_faults),
            voluntary: get(&self.voluntary),
            involuntary: get(&self.involuntary),
            resident_peak: get(&self.resident_peak),
        }
    }

    /// Adds a snapshot to the counters. The peak becomes the larger of the two peaks.
    pub fn add(&self, other: &UsageSnapshot) {
        let add = |counter: &AtomicU64, value| counter.fetch_add(value, Ordering::Relaxed);
        add(&self.user, other.user);
        add(&self.system, other.system);
        add(&self.minor_faults, other.minor_faults);
        add(&self.major_faults, other.major_faults);
        add(&self.voluntary, other.voluntary);
        add(&self.involuntary, other.involuntary);
        self.resident_peak
            .fetch_max(other.resident_peak, Ordering::Relaxed);
    }
}

impl UsageSnapshot {
    /// Returns the sum of two snapshots. Its peak is the larger of the two peaks.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
            resident_peak: self.resident_peak.max(other.resident_peak),
        }
    }
}
