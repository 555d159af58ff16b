//! Page reclaim: swaps pages out when memory is short (Linux 7.2 `mm/vmscan.c`).
//!
//! A thread that finds no free frame runs direct reclaim before the OOM killer runs. In the background, a deadline (not
//! a thread) reclaims while the number of free frames is below the watermarks. Both share one reclaim cursor, which
//! first passes the pages of all processes, then the pages of objects that are not mapped. A page that the cursor
//! passes twice without an access in between is reclaimed. No deadline is set while there is no swap.

use crate::{
    Space, hand,
    kernel::Kernel,
    process::Process,
    scheduler::Expiry,
    sync::{Lock, Rank},
    time::Daemon,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright::{Effort, Memcg, ObjectPlace};
use memwright_table::sync::pause_point;

/// Nanoseconds between two checks of the number of free frames.
const INTERVAL: u64 = 10_000_000;
/// Most entries that one step of background reclaim scans.
const BACKGROUND: u64 = 16_384;
/// Pages that direct reclaim frees (`SWAP_CLUSTER_MAX`).
const DIRECT: u64 = 32;

/// Most rounds of reclaim to fill the reserve.
const MOST_ROUNDS: usize = 64;

/// A position of the reclaim cursor: in the pages that processes map, then in those that are not mapped.
#[derive(Clone, Copy, Default)]
struct Position {
    mapped: hand::Position,
    /// The position in the unmapped pages, while the cursor is there.
    unmapped: Option<ObjectPlace>,
}

impl Position {
    /// Continues to the end of the round, or until the scan control stops it. Scans the pages of processes for which
    /// `wanted` holds, and the unmapped pages of objects; if `memcg` is given, only unmapped pages charged to it.
    /// Returns whether the round is complete.
    fn go_on(
        &mut self,
        kernel: &Kernel,
        wanted: &impl Fn(&Process) -> bool,
        memcg: Option<Memcg>,
        effort: &mut Effort,
    ) -> bool {
        let mapped = |space: &Space, page| space.reclaim(page, effort);
        if self.unmapped.is_none() && !self.mapped.go_on(kernel, wanted, mapped) {
            return false;
        }
        let mut place = self.unmapped.take().unwrap_or_default();
        let is_over = kernel.memory.reclaim_objects(&mut place, memcg, effort);
        if !is_over {
            self.unmapped = Some(place);
        }
        is_over
    }
}

/// A reclaim cursor over all pages that can be reclaimed.
pub(crate) struct Clock {
    /// The position at which the last caller stopped.
    place: Lock<Position>,
}

impl Clock {
    /// Creates a cursor at the start of a round.
    pub(crate) fn new() -> Self {
        Self {
            place: Lock::new(Rank::Leaf, Position::default()),
        }
    }

    /// Continues until `effort` is complete or the cursor has passed everything twice. Several CPUs can do so at the
    /// same time. Each continues separately from the cursor's position, so that each has scanned everything itself
    /// before it reports that nothing can be reclaimed. Other threads can run in the meantime.
    ///
    /// # Locks
    /// The caller holds no lock.
    fn go_round(
        &self,
        kernel: &Kernel,
        wanted: &impl Fn(&Process) -> bool,
        memcg: Option<Memcg>,
        effort: &mut Effort,
    ) {
        let mut place = *self.place.lock();
        // The rest of the current round, a round that ages pages, and one that reclaims them.
        for _ in 0..3 {
            pause_point();
            if !place.go_on(kernel, wanted, memcg, effort) || effort.is_over() {
                break;
            }
        }
        *self.place.lock() = place;
    }
}

/// The state of reclaim.
pub struct Reclaim {
    next: Daemon,
    clock: Clock,
    /// Number of threads that reclaim for a page fault.
    reclaiming: AtomicU64,
}

/// Permits reclaim for a page fault until it is dropped.
pub struct Reclaiming<'a>(&'a AtomicU64);

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reclaim {
    /// Creates the state without background reclaim.
    #[must_use]
    pub fn new() -> Self {
        Self {
            next: Daemon::new(),
            clock: Clock::new(),
            reclaiming: AtomicU64::new(0),
        }
    }

    /// Permits the calling thread to reclaim for a page fault until the returned guard is dropped. Returns `None` if as
    /// many threads as there are CPUs reclaim already. With more, each thread would scan all memory before the first
    /// one finds that nothing can be reclaimed (Linux throttles them: `mm/vmscan.c`, `too_many_isolated`).
    pub fn begin(&self, cpus: u64) -> Option<Reclaiming<'_>> {
        let more = |count| (count < cpus).then_some(count + 1);
        let order = Ordering::Relaxed;
        let begun = self.reclaiming.fetch_update(order, order, more);
        begun.ok().map(|_| Reclaiming(&self.reclaiming))
    }

    /// Sets the next step of background reclaim, or stops it if there is no swap.
    pub fn wake(&self, kernel: &Kernel) {
        let swap = kernel.memory.swap();
        let wait = || swap.is_on().then_some(INTERVAL);
        self.next.set(kernel.scheduler, wait);
    }

    /// Reclaims pages for a thread that found no free frame: `often` times the number for one attempt. Returns false if
    /// none could be reclaimed.
    pub fn relieve(&self, kernel: &Kernel, often: u64) -> bool {
        if kernel.memory.merging().shed(&kernel.memory) > 0 {
            return true;
        }
        if !kernel.memory.swap().is_on() && !kernel.memory.may_lose_pages() {
            return false;
        }
        let memory = &kernel.memory;
        self.relieve_some(kernel, &self.clock, DIRECT * often, |_| true, None)
            || memory.swap().shed_some(memory, DIRECT * often) > 0
    }

    /// Reclaims `pages` pages with the cursor `clock`: pages of processes for which `wanted` holds, and unmapped pages
    /// of objects, only those charged to `memcg` if that is given. Returns false if none could be reclaimed.
    pub(crate) fn relieve_some(
        &self,
        kernel: &Kernel,
        clock: &Clock,
        pages: u64,
        wanted: impl Fn(&Process) -> bool,
        memcg: Option<Memcg>,
    ) -> bool {
        if !kernel.memory.swap().is_on() && !kernel.memory.may_lose_pages() {
            return false;
        }
        let mut effort = Effort {
            look: u64::MAX,
            wanted: pages,
        };
        clock.go_round(kernel, &wanted, memcg, &mut effort);
        effort.wanted < pages
    }

    /// Reclaims until the reserve is full again, no page can be reclaimed, or `MOST_ROUNDS` rounds are done. Called
    /// before an operation that can use much of the reserve.
    pub fn make_room(&self, kernel: &Kernel) {
        let frames = kernel.memory.frames();
        for _ in 0..MOST_ROUNDS {
            if frames.free() >= frames.reserve() || !self.relieve(kernel, 1) {
                return;
            }
        }
    }
}

/// Returns the watermarks: background reclaim starts below the first number of free frames and stops at the second
/// (`low` and `high` of a zone, further apart because the checks are less frequent).
const fn marks(reserve: u64, total: u64) -> (u64, u64) {
    (reserve + total / 64, reserve + total / 32)
}

impl Reclaim {
    /// Sets the action of the deadline: [`Self::step`].
    pub(crate) fn start(&self, step: Arc<dyn Expiry>) {
        self.next.start(step);
    }

    /// Executes the next step, and sets the time of the one after it.
    pub(crate) fn step(&self, kernel: &Kernel) {
        let frames = kernel.memory.frames();
        let (low, high) = marks(frames.reserve(), frames.total());
        let free = frames.free();
        if free < low {
            let mut effort = Effort {
                look: BACKGROUND,
                wanted: high - free,
            };
            let all = |_: &Process| true;
            self.clock.go_round(kernel, &all, None, &mut effort);
        }
        self.wake(kernel);
    }
}
