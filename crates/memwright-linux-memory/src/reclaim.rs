//! Page reclaim: swaps out and writes back pages when memory is short (Linux 7.2 `mm/vmscan.c`).
//!
//! A thread that finds no free frame runs direct reclaim before the OOM killer runs. Background reclaim has a deadline
//! instead of a thread, and reclaims while the number of free frames is below the watermarks. Direct and background
//! reclaim share one cursor, which first scans the pages that processes map, and then the unmapped pages of objects. A
//! page is reclaimed if the cursor scans it twice without an access in between. While there is no swap, no deadline is
//! set.

use crate::hand::visit_spaces;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};
use memwright::Effort;
use memwright_linux_abi::{Memory, Space};
use memwright_linux_base::sync::{self, pause_point};
use memwright_linux_sched::{
    scheduler::{Expiry, TimerKey},
    time::Daemon,
};
use memwright_linux_tasks::{
    process::{Among, Tasks},
    reclaim_cursor::{ReclaimCursor, ReclaimPosition},
};
use memwright_linux_vfs::direct_reclaim::DirectReclaim;

/// The time in nanoseconds between two checks of the number of free frames.
const INTERVAL: u64 = 10_000_000;
/// The maximum number of entries that one step of background reclaim scans.
const BACKGROUND: u64 = 16_384;
/// The number of pages that direct reclaim frees at a time (`SWAP_CLUSTER_MAX`). Before a further retry of an
/// operation, it frees a multiple of this number.
const DIRECT: u64 = 32;

/// The maximum number of times that one operation is retried after direct reclaim. Each retry reclaims `DIRECT` pages
/// more than the retry before it, which makes about 260 MiB in total.
const MOST_RETRIES: u64 = 64;

/// The maximum number of times that `make_room` reclaims `DIRECT` pages.
const MOST_ROUNDS: usize = 64;

/// Continues a round from the position `place` to the end of the round, or until the scan control `effort` stops the
/// scan. Scans the pages that the processes of `among` map, and then the unmapped pages of objects. If `among` is a
/// cgroup, scans only the objects that are charged to it. Returns whether the round is complete.
fn go_on(
    place: &mut ReclaimPosition,
    (memory, tasks): (&Memory, &Tasks),
    among: Among<'_>,
    effort: &mut Effort,
) -> bool {
    let memcg = among.memcg();
    let mapped = |space: &Space, page| space.reclaim(page, effort);
    if place.unmapped.is_none() && !visit_spaces(&mut place.mapped, tasks, among, mapped) {
        return false;
    }
    let mut object = place.unmapped.take().unwrap_or_default();
    let is_over = memory.reclaim_objects(&mut object, memcg, effort);
    if !is_over {
        place.unmapped = Some(object);
    }
    is_over
}

/// Scans from the position of `cursor` until `effort` is complete or all pages have been scanned three times. Several
/// CPUs can call this function at the same time. Each CPU starts at the cursor's position and advances its own copy of
/// that position. So it has scanned all pages itself before it reports that no page can be reclaimed. Other threads can
/// run between two rounds.
///
/// # Locks
/// The caller holds no lock.
fn go_round(cursor: &ReclaimCursor, all: (&Memory, &Tasks), among: Among<'_>, effort: &mut Effort) {
    let mut place = *cursor.place.lock();
    // The first call of `go_on` completes the current round. The second call ages the pages through the mappings of the
    // processes of `among`, and the third call ages them through the mappings of other processes. The fourth call
    // reclaims the pages.
    for _ in 0..4 {
        pause_point();
        if !go_on(&mut place, all, among, effort) || effort.is_over() {
            break;
        }
    }
    *cursor.place.lock() = place;
}

/// The state of direct and background reclaim.
pub struct Reclaim {
    next: Daemon,
    memory: Arc<Memory>,
    tasks: &'static Tasks,
    cursor: ReclaimCursor,
    /// The number of threads that reclaim for a page fault.
    reclaiming: AtomicU64,
}

/// Permits a thread to reclaim for a page fault. Dropping this value ends the permission.
pub struct Reclaiming<'a>(&'a AtomicU64);

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reclaim {
    /// Creates the state. Background reclaim does not run yet.
    #[must_use]
    pub fn new(memory: Arc<Memory>, tasks: &'static Tasks) -> Arc<Self> {
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            next: Daemon::new(own.clone(), tasks.scheduler),
            memory,
            tasks,
            cursor: ReclaimCursor::default(),
            reclaiming: AtomicU64::new(0),
        })
    }

    /// Permits the calling thread to reclaim for a page fault until the returned guard is dropped. Returns `None` if as
    /// many threads as there are CPUs reclaim already. If more threads reclaimed, each would scan all memory before the
    /// first one finds that no page can be reclaimed (Linux throttles them: `mm/vmscan.c`, `too_many_isolated`).
    pub fn begin(&self, cpus: u64) -> Option<Reclaiming<'_>> {
        let more = |count| (count < cpus).then_some(count + 1);
        let order = Ordering::Relaxed;
        let begun = self.reclaiming.fetch_update(order, order, more);
        begun.ok().map(|_| Reclaiming(&self.reclaiming))
    }

    /// Sets the deadline of the next step of background reclaim, or clears it if there is no swap.
    pub fn wake(&self) {
        let swap = self.memory.swap();
        let wait = || swap.is_on().then_some(INTERVAL);
        self.next.set(wait);
    }

    /// Reclaims up to `often` × `DIRECT` pages for a thread that found no free frame. Returns false if no page could be
    /// reclaimed.
    pub fn relieve(&self, often: u64) -> bool {
        if self.memory.merging().shed(&self.memory) > 0 {
            return true;
        }
        if !self.memory.swap().is_on() && !self.memory.may_lose_pages() {
            return false;
        }
        let memory = &self.memory;
        self.relieve_some(&self.cursor, DIRECT * often, Among::All)
            || memory.swap().shed_some(memory, DIRECT * often) > 0
    }

    /// Reclaims up to `pages` pages with `cursor`: pages that the processes of `among` map, and unmapped pages of
    /// objects. If `among` is a cgroup, reclaims only unmapped pages of objects that are charged to it. Returns false
    /// if no page could be reclaimed.
    pub fn relieve_some(&self, cursor: &ReclaimCursor, pages: u64, among: Among<'_>) -> bool {
        if !self.memory.swap().is_on() && !self.memory.may_lose_pages() {
            return false;
        }
        let mut effort = Effort {
            look: u64::MAX,
            wanted: pages,
            charged: among.memcg().is_some(),
        };
        go_round(cursor, (&self.memory, self.tasks), among, &mut effort);
        effort.wanted < pages
    }

    /// Reclaims until the reserve is full, no page can be reclaimed, or `MOST_ROUNDS` rounds are done. Called before an
    /// operation that can use much of the reserve.
    pub fn make_room(&self) {
        let frames = self.memory.frames();
        for _ in 0..MOST_ROUNDS {
            if frames.free() >= frames.reserve() || !self.relieve(1) {
                return;
            }
        }
    }
}

/// Returns the two watermarks. Background reclaim starts when the number of free frames is below the first, and stops
/// at the second. They correspond to `low` and `high` of a zone on Linux, but are further apart because the checks are
/// less frequent.
const fn marks(reserve: u64, total: u64) -> (u64, u64) {
    (reserve + total / 64, reserve + total / 32)
}

impl DirectReclaim for Reclaim {
    #[cold]
    #[inline(never)]
    fn after_round(&self, round: u64) -> Option<u64> {
        let next = round + 1;
        let frames = self.memory.frames();
        let allocations = frames.allocations();
        if round >= MOST_RETRIES {
            return None;
        }
        if self.relieve(next) {
            return Some(next);
        }
        sync::relax();
        (frames.allocations() != allocations).then_some(next)
    }
}

impl Expiry for Reclaim {
    fn expire(self: Arc<Self>, _key: TimerKey) {
        let frames = self.memory.frames();
        let (low, high) = marks(frames.reserve(), frames.total());
        let free = frames.free();
        if free < low {
            let mut effort = Effort {
                look: BACKGROUND,
                wanted: high - free,
                charged: false,
            };
            go_round(
                &self.cursor,
                (&self.memory, self.tasks),
                Among::All,
                &mut effort,
            );
        }
        self.wake();
    }
}
