//! Background merging of pages with equal contents (Linux 7.2 `mm/ksm.c`, `ksmd`).
//!
//! Like the scan for huge pages, this scan has a deadline instead of a thread, so it progresses even if all CPUs are
//! busy. No deadline is set while merging is off, or while no program has marked memory as mergeable.
//!
//! On Linux, regardless of the settings, the scheduler divides the CPU between programs and `ksmd`, which is a thread
//! of nice 5. Here, a batch is split into steps of bounded length. After each step the scan pauses until the threads of
//! its CPU have had as large a share of time as Linux gives them.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use memwright_linux_abi::{Memory, abi::MILLISECOND, errno::Errno};
use memwright_linux_sched::{
    scheduler::{Expiry, Scheduler, TimerKey, Timers},
    time::Daemon,
};
use memwright_linux_tasks::process::Thread;

/// The maximum number of pages that one step scans. A batch of the default length takes one step.
const LOOK: u64 = 128;

/// The weight of a thread of nice 5 in Linux's scheduler (`sched_prio_to_weight` of Linux 6.18, `kernel/sched/core.c`).
const OWN_WEIGHT: u64 = 335;
/// The weight of a thread of nice 0.
const THREAD_WEIGHT: u64 = 1024;

/// The minimum number of nanoseconds between two steps. The pause lets a thread become ready on a CPU that is otherwise
/// idle.
const LEAST_REST: u64 = 10_000;

/// Returns the nanoseconds for which the scan pauses after a step that took `took` nanoseconds, so that `threads`
/// threads get their share of the CPU.
fn rest(took: u64, threads: u64) -> u64 {
    let share = took.saturating_mul(threads * THREAD_WEIGHT) / OWN_WEIGHT;
    share.max(LEAST_REST)
}

/// The state of the scan (`/sys/kernel/mm/ksm/run`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Run {
    /// The scan is stopped; merged pages stay merged.
    Stop = 0,
    /// The scan runs.
    Merge = 1,
    /// The scan is stopped, and the merged pages were unmerged.
    Unmerge = 2,
}

impl Run {
    /// Returns the state with the number `number`.
    #[must_use]
    pub const fn of(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Stop),
            1 => Some(Self::Merge),
            2 => Some(Self::Unmerge),
            _ => None,
        }
    }
}

/// The scan of ksmd: its state, and the time of its next step.
pub struct MergeScan {
    /// The state of the scan: a [`Run`] as a number.
    run: AtomicU8,
    /// The time at which stale KSM frames are freed next. A stale frame is one that no page-table entry maps any more.
    prune: AtomicU64,
    next: Daemon,
    memory: Arc<Memory>,
    scheduler: &'static Scheduler<Thread>,
    /// The number of pages left to scan in this batch; 0 between two batches.
    left: AtomicU64,
}

impl MergeScan {
    /// Creates the scan, which is stopped at first.
    #[must_use]
    pub fn new(memory: Arc<Memory>, scheduler: &'static Scheduler<Thread>) -> Arc<Self> {
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            run: AtomicU8::new(Run::Stop as u8),
            prune: AtomicU64::new(0),
            next: Daemon::new(own.clone(), scheduler),
            memory,
            scheduler,
            left: AtomicU64::new(0),
        })
    }

    /// Returns the state as a number.
    pub fn state(&self) -> u8 {
        self.run.load(Ordering::Relaxed)
    }

    /// Starts or stops the scan. `Run::Unmerge` also unmerges all pages (`run_store`).
    ///
    /// # Errors
    /// `ENOMEM` if there are not enough frames to unmerge all pages. The scan is then stopped.
    pub fn set(&self, run: Run) -> Result<(), Errno> {
        let before = self.run.swap(run as u8, Ordering::SeqCst);
        self.wake();
        if run == Run::Unmerge && before != run as u8 {
            self.memory.unmerge_all().map_err(|_| {
                self.run.store(Run::Stop as u8, Ordering::SeqCst);
                Errno::ENOMEM
            })?;
        }
        Ok(())
    }

    /// Starts the scan if it is not running. Called after memory has become mergeable.
    pub fn want(&self) {
        if !self.next.is_set() {
            self.wake();
        }
    }

    /// Ends the current batch. Sets the time of the next batch, which begins after the configured sleep. Called after a
    /// setting has changed.
    pub fn wake(&self) {
        self.left.store(0, Ordering::Relaxed);
        self.go_on_after(0);
    }

    /// Sets the time of the next step. Within a batch, the step is in `rest` nanoseconds. Between two batches, it is
    /// after the configured sleep. Sets no time if the scan is stopped or no memory is mergeable.
    fn go_on_after(&self, rest: u64) {
        let merging = self.memory.merging();
        self.next.set(|| {
            let goes_on = self.state() == Run::Merge as u8 && merging.is_wanted();
            let sleep = match self.left.load(Ordering::Relaxed) {
                0 => u64::from(merging.settings().sleep.load(Ordering::Relaxed).max(1)),
                _ => 0,
            };
            goes_on.then_some(rest.max(sleep * MILLISECOND))
        });
    }

    /// Executes one step, which scans at most `LOOK` pages of the rest of the batch.
    fn look(&self) {
        let memory = &self.memory;
        let merging = memory.merging();
        let left = match self.left.load(Ordering::Relaxed) {
            0 => merging.settings().pages.load(Ordering::Relaxed).into(),
            left => left,
        };
        let pages = left.min(LOOK);
        // The end of a round over all mergeable memory also ends the batch.
        let left = if memory.merge_pages(pages) {
            0
        } else {
            left - pages
        };
        self.left.store(left, Ordering::Relaxed);
        let now = self.scheduler.now();
        if now >= self.prune.load(Ordering::Relaxed) {
            merging.shed(memory);
            let wait = u64::from(merging.settings().prune.load(Ordering::Relaxed));
            let next = now.saturating_add(wait * MILLISECOND);
            self.prune.store(next, Ordering::Relaxed);
        }
    }
}

impl Expiry for MergeScan {
    fn expire(self: Arc<Self>, _key: TimerKey) {
        let start = self.scheduler.now();
        if self.state() == Run::Merge as u8 {
            self.look();
        }
        let took = self.scheduler.now().saturating_sub(start);
        self.go_on_after(rest(took, self.scheduler.active_here()));
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAST_REST, rest};

    #[test]
    fn the_scan_gets_the_share_of_a_thread_of_nice_5() {
        assert_eq!(rest(335_000, 0), LEAST_REST, "no thread wants the CPU");
        assert_eq!(rest(335, 1), LEAST_REST);
        assert_eq!(rest(335_000, 1), 1_024_000);
        assert_eq!(rest(335_000, 3), 3 * 1_024_000);
        assert_eq!(rest(u64::MAX, 2), u64::MAX / 335);
    }
}
