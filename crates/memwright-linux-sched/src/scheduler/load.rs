//! Load averages: the recent number of running and runnable threads.
//!
//! On Linux, a timer samples the number of running and runnable threads every five seconds. Here, a thread that reads
//! the averages, and a CPU that becomes idle or busy, adds the samples that are due.

use super::{Schedulable, Scheduler};
use core::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};
use memwright_linux_abi::abi::SECOND;
use memwright_linux_base::sync::{Lock, Rank};

/// Nanoseconds between samples (`LOAD_FREQ` of Linux 7.2, `include/linux/sched/loadavg.h`).
const PERIOD: u64 = 5 * SECOND;
/// The number one in the fixed-point format of the averages (`FIXED_1`).
const ONE: u64 = 1 << 11;
/// Factors by which an average decays in one period, for one, five and fifteen minutes (`EXP_1`, ...).
const DECAY: [u64; 3] = [1884, 2014, 2037];

/// An average, as in `/proc/loadavg` and `sysinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadAverage(u64);

impl LoadAverage {
    /// Returns the average in units of 1/65,536, as in `sysinfo`.
    #[must_use]
    pub const fn scaled(self) -> u64 {
        self.0 << 5
    }
}

impl fmt::Display for LoadAverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounded = self.0 + ONE / 200;
        let hundredths = (rounded % ONE) * 100 / ONE;
        write!(f, "{}.{hundredths:02}", rounded / ONE)
    }
}

/// Returns the average `load` after one more sample, which moves it towards the number of active threads (`calc_load`
/// of Linux 7.2).
const fn counted(load: u64, decay: u64, active: u64) -> u64 {
    let active = active * ONE;
    let mut sum = load * decay + active * (ONE - decay);
    if active >= load {
        sum += ONE - 1;
    }
    sum / ONE
}

/// The averages, and the time of the next sample.
pub(super) struct Load {
    next: AtomicU64,
    averages: Lock<[u64; 3]>,
}

impl Load {
    pub(super) const fn new() -> Self {
        Self {
            next: AtomicU64::new(PERIOD),
            averages: Lock::new(Rank::Leaf, [0; 3]),
        }
    }

    /// Adds the samples that are due by `now`, each with the number of active threads that `active` returns.
    fn catch_up(&self, now: u64, active: impl FnOnce() -> usize) {
        if now >= self.next.load(Ordering::Relaxed) {
            self.count(now, active() as u64);
        }
    }

    #[cold]
    fn count(&self, now: u64, active: u64) {
        let mut averages = self.averages.lock();
        // Another CPU may have added the samples since the check.
        let mut next = self.next.load(Ordering::Relaxed);
        while next <= now {
            let before = *averages;
            for (average, decay) in averages.iter_mut().zip(DECAY) {
                *average = counted(*average, decay, active);
            }
            next += PERIOD;
            if *averages == before {
                // The averages have converged: skip the remaining samples.
                next += (now.max(next) - next) / PERIOD * PERIOD;
                if next <= now {
                    next += PERIOD;
                }
            }
        }
        self.next.store(next, Ordering::Relaxed);
    }
}

impl<T: Schedulable> Scheduler<T> {
    /// Returns the number of running and runnable threads.
    pub fn active(&self) -> usize {
        let idle = self.idle.load(Ordering::SeqCst).count_ones() as usize;
        let waiting: usize = self
            .cpus
            .iter()
            .map(|cpu| cpu.waiting.load(Ordering::Relaxed))
            .sum();
        self.cpus.len().saturating_sub(idle) + waiting
    }

    /// Returns the number of running and runnable threads on this CPU.
    pub fn active_here(&self) -> u64 {
        let cpu = self.cpu();
        let running = u64::from(cpu.current.lock().is_some());
        running + cpu.waiting.load(Ordering::Relaxed) as u64
    }

    /// Returns the number of context switches on all CPUs, including those to the idle loop.
    pub fn switches(&self) -> u64 {
        let switches = self.cpus.iter().map(|cpu| &cpu.switches);
        switches
            .map(|switches| switches.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns the averages over one, five and fifteen minutes.
    pub fn load_averages(&self, now: u64) -> [LoadAverage; 3] {
        self.note_load(now);
        self.load.averages.lock().map(LoadAverage)
    }

    /// Adds the samples that are due. Called before the number of active threads changes.
    pub(super) fn note_load(&self, now: u64) {
        self.load.catch_up(now, || self.active());
    }
}

#[cfg(test)]
mod tests {
    use super::{DECAY, Load, LoadAverage, ONE, PERIOD, counted};
    use alloc::string::ToString;

    #[test]
    fn averages_move_towards_what_is() {
        // One thread for a minute: 1 - 1/e.
        let mut load = 0;
        for _ in 0..12 {
            load = counted(load, DECAY[0], 1);
        }
        assert!((1290..=1310).contains(&load), "{load}");
        // After a long time with one thread the average is exactly one. After a long time without threads it is zero
        // again.
        for _ in 0..1000 {
            load = counted(load, DECAY[0], 1);
        }
        assert_eq!(load, ONE);
        for _ in 0..1000 {
            load = counted(load, DECAY[0], 0);
        }
        assert_eq!(load, 0);
    }

    #[test]
    fn averages_are_shown_in_hundredths() {
        for (load, text) in [
            (0, "0.00"),
            (ONE, "1.00"),
            (ONE / 2, "0.50"),
            (3071, "1.50"),
        ] {
            assert_eq!(LoadAverage(load).to_string(), text);
        }
        assert_eq!(LoadAverage(ONE).scaled(), 65536);
    }

    #[test]
    fn missed_counts_are_made_up_for() {
        let (one, other) = (Load::new(), Load::new());
        for period in 1..=100 {
            one.catch_up(period * PERIOD, || 2);
        }
        other.catch_up(100 * PERIOD + 1, || 2);
        // Lock the averages of `one` and `other` one after the other: a CPU must not hold two locks of this rank.
        let expected = *one.averages.lock();
        assert_eq!(*other.averages.lock(), expected);
        other.catch_up(101 * PERIOD - 1, || unreachable!("no count is due"));
        other.catch_up(1_000_000_000 * PERIOD, || 0);
        assert_eq!(*other.averages.lock(), [0; 3]);
        other.catch_up(1_000_000_001 * PERIOD - 1, || {
            unreachable!("no count is due")
        });
        other.catch_up(1_000_000_001 * PERIOD, || 1);
        assert_ne!(*other.averages.lock(), [0; 3]);
    }
}
