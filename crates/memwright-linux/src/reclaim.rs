//! Memory is short: pages go out to swap (Linux 7.2 `mm/vmscan.c`).
//!
//! Whoever finds no frame looks for pages himself before anybody is killed. In the background a deadline, no thread,
//! does the same as long as fewer frames are free than should be. Both go round with one hand, first all processes, then
//! the objects whose pages nobody shows: what it passes twice without being used in between leaves. Nothing is scheduled
//! while there is no swap.

use crate::{
    Space, hand,
    kernel::Kernel,
    process::Process,
    sync::{Lock, Rank},
    time::{Expiry, NextLook},
};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};
use memwright::{Effort, SwapPayer, swap::ObjectPlace};
use memwright_table::sync::pause_point;

/// Nanoseconds between two looks at how much is free.
const INTERVAL: u64 = 10_000_000;
/// Entries that one look in the background passes at most.
const BACKGROUND: u64 = 16_384;
/// Pages that whoever finds no frame sends out (`SWAP_CLUSTER_MAX`).
const DIRECT: u64 = 32;

/// How often pages are sent out to make the reserve whole.
const MOST_ROUNDS: usize = 64;

/// A place on the way round everything that may leave: the pages that processes show, then those that nobody shows.
#[derive(Clone, Copy, Default)]
struct Position {
    shown: hand::Position,
    /// Where it is among the pages that nobody shows, while it is there.
    unshown: Option<ObjectPlace>,
}

impl Position {
    /// Goes on to the end of the round, or of the effort: pages of processes that are `wanted`, and those that nobody
    /// shows and `payer` pays for, if somebody in particular is to. Whether the round is over.
    fn go_on(
        &mut self,
        kernel: &Kernel,
        wanted: &impl Fn(&Process) -> bool,
        payer: Option<SwapPayer>,
        effort: &mut Effort,
    ) -> bool {
        let shown = |space: &Space, page| space.reclaim(page, effort);
        if self.unshown.is_none() && !self.shown.go_on(kernel, wanted, shown) {
            return false;
        }
        let mut place = self.unshown.take().unwrap_or_default();
        let is_over = kernel.memory.reclaim_objects(&mut place, payer, effort);
        if !is_over {
            self.unshown = Some(place);
        }
        is_over
    }
}

/// A hand that goes round what may leave.
pub(crate) struct Clock {
    /// Where the caller stopped that came last.
    place: Lock<Position>,
}

impl Clock {
    /// A hand that has not begun.
    pub(crate) fn new() -> Self {
        Self {
            place: Lock::new(Rank::Leaf, Position::default()),
        }
    }

    /// Goes on until the effort is over, or everything was passed twice. Several CPUs may do so at a time: each goes its
    /// own way from where the hand was, so that it has seen everything itself before it says that nothing leaves. The caller
    /// holds no lock; other threads may run meanwhile.
    fn go_round(
        &self,
        kernel: &Kernel,
        wanted: &impl Fn(&Process) -> bool,
        payer: Option<SwapPayer>,
        effort: &mut Effort,
    ) {
        let mut place = *self.place.lock();
        // The round that has begun, one that ages and one that takes.
        for _ in 0..3 {
            pause_point();
            if !place.go_on(kernel, wanted, payer, effort) || effort.is_over() {
                break;
            }
        }
        *self.place.lock() = place;
    }
}

/// What sends pages out.
pub struct Reclaim {
    own: Weak<Self>,
    next: NextLook,
    clock: Clock,
    /// Threads that reclaim for a page fault.
    reclaiming: AtomicU64,
}

/// The right to reclaim for a page fault, until it is dropped.
pub struct Reclaiming<'a>(&'a AtomicU64);

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reclaim {
    /// A hand that rests.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: own.clone(),
            next: NextLook::none(),
            clock: Clock::new(),
            reclaiming: AtomicU64::new(0),
        })
    }

    /// Lets a thread reclaim for a page fault, unless as many others do as there are CPUs. Threads that take turns at a scan
    /// would each pass all memory before the first of them finds that nothing leaves (Linux throttles them:
    /// `mm/vmscan.c`, `too_many_isolated`).
    pub fn begin(&self, cpus: u64) -> Option<Reclaiming<'_>> {
        let more = |count| (count < cpus).then_some(count + 1);
        let order = Ordering::Relaxed;
        let begun = self.reclaiming.fetch_update(order, order, more);
        begun.ok().map(|_| Reclaiming(&self.reclaiming))
    }

    /// Looks in the background from now on, if there is swap.
    pub fn wake(&self, kernel: &Kernel) {
        let swap = kernel.memory.swap();
        let wait = || swap.is_on().then_some(INTERVAL);
        // If there is no memory for the deadline, the scan rests until the next call.
        let _ = self.next.set(kernel, &self.own, wait);
    }

    /// Sends some pages out for somebody who finds no frame, and more the more `often` he found none. False if none
    /// went.
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

    /// Sends `pages` pages of the processes that are `wanted` out, and of objects for which `payer` pays, round which
    /// `clock` goes. False if none went.
    pub(crate) fn relieve_some(
        &self,
        kernel: &Kernel,
        clock: &Clock,
        pages: u64,
        wanted: impl Fn(&Process) -> bool,
        payer: Option<SwapPayer>,
    ) -> bool {
        if !kernel.memory.swap().is_on() && !kernel.memory.may_lose_pages() {
            return false;
        }
        let mut effort = Effort {
            look: u64::MAX,
            wanted: pages,
        };
        clock.go_round(kernel, &wanted, payer, &mut effort);
        effort.wanted < pages
    }

    /// Before something that may use the reserve takes much of it: sends pages out until it is whole again, or no page
    /// goes.
    pub fn make_room(&self, kernel: &Kernel) {
        let frames = kernel.memory.frames();
        for _ in 0..MOST_ROUNDS {
            if frames.free() >= frames.reserve() || !self.relieve(kernel, 1) {
                return;
            }
        }
    }
}

/// Below how many free frames the background begins, and up to how many it goes on (`low` and `high` of a zone, wider
/// apart because one look is far from the next).
const fn marks(reserve: u64, total: u64) -> (u64, u64) {
    (reserve + total / 64, reserve + total / 32)
}

impl Expiry for Reclaim {
    fn expire(self: Arc<Self>, kernel: &Kernel) {
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
