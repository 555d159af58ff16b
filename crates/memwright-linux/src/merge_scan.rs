//! The scan that lets pages with equal contents share frames, in the background (Linux 7.2 `mm/ksm.c`, `ksmd`).
//!
//! As with huge pages it is a deadline, not a thread: it gets on however busy the CPUs are. Nothing is scheduled while
//! it is off, or no program has said that its memory may be merged.
//!
//! On Linux the scheduler shares the CPU out between programs and `ksmd`, a thread of nice 5, whatever the settings say.
//! Here a turn is cut into looks of bounded length, and after each the scan rests until the threads of its CPU have had
//! the share that Linux gives them.

use crate::{
    abi::MILLISECOND,
    errno::Errno,
    kernel::Kernel,
    time::{Expiry, NextLook},
};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The most pages that one look takes in. A turn of the default length is one look.
const LOOK: u64 = 128;

/// What Linux's scheduler counts a thread of nice 5 as (`sched_prio_to_weight` of Linux 6.18, `kernel/sched/core.c`).
const OWN_WEIGHT: u64 = 335;
/// What it counts a thread of nice 0 as.
const THREAD_WEIGHT: u64 = 1024;

/// Nanoseconds between two looks on an idle CPU, in which it sees whether a thread has become ready.
const LEAST_REST: u64 = 10_000;

/// How long the scan rests after a look that took so long, so that so many threads get their share.
fn rest(took: u64, threads: u64) -> u64 {
    let share = took.saturating_mul(threads * THREAD_WEIGHT) / OWN_WEIGHT;
    share.max(LEAST_REST)
}

/// What the scan does (`/sys/kernel/mm/ksm/run`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Run {
    /// It stands still; what is merged stays so.
    Stop = 0,
    /// It goes round.
    Merge = 1,
    /// It stands still, and nothing is merged.
    Unmerge = 2,
}

impl Run {
    /// That with this number.
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

/// Whether the scan goes on, and when.
pub struct MergeScan {
    own: Weak<Self>,
    /// A [`Run`].
    run: AtomicU8,
    /// When frames that nobody shows are looked for again.
    prune: AtomicU64,
    next: NextLook,
    /// Pages that this turn has yet to look at.
    left: AtomicU64,
}

impl MergeScan {
    /// A scan that stands still.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: own.clone(),
            run: AtomicU8::new(Run::Stop as u8),
            prune: AtomicU64::new(0),
            next: NextLook::none(),
            left: AtomicU64::new(0),
        })
    }

    /// What it does, as a number.
    pub fn state(&self) -> u8 {
        self.run.load(Ordering::Relaxed)
    }

    /// Lets it go on, or stops it (`run_store`).
    ///
    /// # Errors
    /// `ENOMEM` if there are no frames for pages that are to be apart: it stands still then.
    pub fn set(&self, kernel: &Kernel, run: Run) -> Result<(), Errno> {
        let before = self.run.swap(run as u8, Ordering::SeqCst);
        self.wake(kernel);
        if run == Run::Unmerge && before != run as u8 {
            kernel.memory.unmerge_all().map_err(|_| {
                self.run.store(Run::Stop as u8, Ordering::SeqCst);
                Errno::ENOMEM
            })?;
        }
        Ok(())
    }

    /// Some memory may be merged from now on.
    pub fn want(&self, kernel: &Kernel) {
        if !self.next.is_set() {
            self.wake(kernel);
        }
    }

    /// A setting changed: the next look is as far away as it says now.
    pub fn wake(&self, kernel: &Kernel) {
        self.left.store(0, Ordering::Relaxed);
        self.go_on_after(kernel, 0);
    }

    /// Sets the next look: after this rest within a turn, and as far away as the settings say between two.
    fn go_on_after(&self, kernel: &Kernel, rest: u64) {
        let merging = kernel.memory.merging();
        // If there is no memory for the deadline, the scan rests until the next call.
        let _ = self.next.set(kernel, &self.own, || {
            let goes_on = self.state() == Run::Merge as u8 && merging.is_wanted();
            let sleep = match self.left.load(Ordering::Relaxed) {
                0 => u64::from(merging.settings().sleep.load(Ordering::Relaxed).max(1)),
                _ => 0,
            };
            goes_on.then_some(rest.max(sleep * MILLISECOND))
        });
    }

    /// Looks at as many pages as the settings say for one turn, or the first of them.
    fn look(&self, kernel: &Kernel) {
        let memory = &kernel.memory;
        let merging = memory.merging();
        let left = match self.left.load(Ordering::Relaxed) {
            0 => merging.settings().pages.load(Ordering::Relaxed).into(),
            left => left,
        };
        let pages = left.min(LOOK);
        // The end of a round ends the turn too.
        let left = if memory.merge_pages(pages) {
            0
        } else {
            left - pages
        };
        self.left.store(left, Ordering::Relaxed);
        let now = kernel.host.now();
        if now >= self.prune.load(Ordering::Relaxed) {
            merging.shed(memory);
            let wait = u64::from(merging.settings().prune.load(Ordering::Relaxed));
            let next = now.saturating_add(wait * MILLISECOND);
            self.prune.store(next, Ordering::Relaxed);
        }
    }
}

impl Expiry for MergeScan {
    fn expire(self: Arc<Self>, kernel: &Kernel) {
        let start = kernel.host.now();
        if self.state() == Run::Merge as u8 {
            self.look(kernel);
        }
        let took = kernel.host.now().saturating_sub(start);
        self.go_on_after(kernel, rest(took, kernel.scheduler.active_here(kernel)));
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
