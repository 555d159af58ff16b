//! Waits that spin for a bounded time and then halt the CPU; see the parent module.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::{Functions, GaveWay, Rank, Step, Threads, stat};
use crate::addr::{CpuId, CpuSet};

/// The number of turns for which a wait spins before it halts. A turn is one iteration of the loop that waits. These
/// turns take longer than a short critical section of this kernel takes on a running CPU. The value is 0 under a test
/// scheduler that tries every order of steps, because spinning adds no further order.
pub const SPINS: u32 = if cfg!(feature = "interleave") { 0 } else { 256 };
/// The length of the first nap in nanoseconds. Each nap is twice as long as the one before, up to `LONGEST_NAP`.
const FIRST_NAP: u32 = 16_384;
const LONGEST_NAP: u32 = 1 << 20;

/// Returns the length of the nap that follows a nap of `before` nanoseconds; `before` is 0 for the first nap.
const fn nap_after(before: u32) -> u32 {
    if before == 0 {
        FIRST_NAP
    } else if before < LONGEST_NAP {
        before * 2
    } else {
        LONGEST_NAP
    }
}

/// The state of a wait for another thread.
///
/// In debug builds of a kernel, a wait for a lock panics if its naps add up to five minutes. There is no limit on a
/// host, which can suspend a thread for any time, and no limit if the CPUs do not halt ([`Threads::HALTS`]).
#[derive(Debug)]
#[must_use = "a wait does nothing until it takes turns"]
pub struct Wait {
    threads: &'static Functions,
    /// The rank of the lock; `None` if the wait is not for a lock.
    rank: Option<Rank>,
    /// The number of spinning turns left.
    spins: u32,
    /// Whether the wait has taken a turn.
    begun: bool,
    /// The length of the last nap in nanoseconds; 0 before the first.
    nap: u32,
    /// The total length of all naps in nanoseconds.
    napped: u64,
    /// Whether other threads of this CPU are runnable, but all of them are waiting for locks.
    accompanied: bool,
    /// Whether the wait has been counted as [`stat::Waits::Halted`].
    blocked: bool,
    /// Whether the CPU halted during the wait.
    halted: bool,
}

impl Wait {
    /// Whether waits are limited in time.
    const LIMITED: bool = cfg!(all(debug_assertions, not(any(test, feature = "std"))));
    /// The total length of naps, in nanoseconds, at which a wait for a lock panics: five minutes.
    const MOST: u64 = 300_000_000_000;

    /// Creates a wait for an event other than the release of a lock. The event does not wake the CPU.
    pub fn new<H: Threads>() -> Self {
        Self::of(H::functions(), None)
    }

    /// Creates a wait for a lock of `rank`.
    pub(super) const fn for_lock(threads: &'static Functions, rank: Rank) -> Self {
        Self::of(threads, Some(rank))
    }

    const fn of(threads: &'static Functions, rank: Option<Rank>) -> Self {
        Self {
            threads,
            rank,
            spins: SPINS,
            begun: false,
            nap: 0,
            napped: 0,
            accompanied: false,
            blocked: false,
            halted: false,
        }
    }

    /// Performs one iteration of the wait: spins at first, later halts the CPU for a limited time (a nap).
    #[inline]
    pub fn turn(&mut self) {
        if self.spin() || self.give_way() {
            return;
        }
        self.begin_halt();
        let nap = self.next_nap();
        self.limit();
        self.threads.step(Step::Wait);
        (self.threads.halt)(Some(nap));
    }

    /// Performs one turn of a wait that [`Halted::wake`] ends: spins for the first turns, then halts until woken.
    /// `over` returns whether the awaited event has happened.
    pub(super) fn turn_until(&mut self, halted: &Halted, over: impl Fn() -> bool) {
        if self.spin() || self.give_way() {
            return;
        }
        let cpu = (self.threads.cpu)();
        let this = CpuSet::single(cpu).bits();
        self.threads.step(Step::Announce);
        halted.0.fetch_or(this, Ordering::SeqCst);
        // Order the write to `halted` before the check. `wake` orders the release of the lock before the read of
        // `halted`.
        fence(Ordering::SeqCst);
        if !over() {
            self.begin_halt();
            self.threads.step(Step::Halt(cpu));
            // Limit the halt if other threads of the CPU are waiting, because the events that they wait for may not
            // wake the CPU.
            let limit = self.accompanied.then(|| self.next_nap());
            (self.threads.halt)(limit);
        }
        // The halt may have ended for another reason.
        halted.0.fetch_and(!this, Ordering::Relaxed);
    }

    /// Spins for one turn, if spinning turns are left. Returns whether it did.
    #[inline]
    fn spin(&mut self) -> bool {
        if !self.begun {
            self.begun = true;
            stat::count_wait_on(self.threads, stat::Waits::Contended);
        }
        if self.spins == 0 {
            return false;
        }
        self.spins -= 1;
        self.threads.relax();
        true
    }

    /// Adds the current nap to the total, and panics if the total reaches the limit.
    fn limit(&mut self) {
        if let Some(rank) = self.rank.filter(|_| Self::LIMITED && self.threads.halts) {
            self.napped += u64::from(self.nap);
            assert!(
                self.napped < Self::MOST,
                "a lock of rank {rank:?} is not released"
            );
        }
    }

    /// Yields to other threads of the CPU if one of them may hold the lock. Returns whether a thread ran that was not
    /// waiting for a lock.
    fn give_way(&mut self) -> bool {
        if !self.rank.is_some_and(Rank::sleeps) {
            return false;
        }
        let gave = super::give_way(self.threads, true);
        self.accompanied = gave == GaveWay::ToWaiters;
        if gave != GaveWay::ToNobody {
            self.count_blocked();
            // Serve the invalidations that other CPUs request from this one: a wait must not delay them.
            self.threads.relax();
        }
        gave == GaveWay::ToOthers
    }

    /// Advances to the next nap and returns its length.
    fn next_nap(&mut self) -> u32 {
        self.nap = nap_after(self.nap);
        self.nap
    }

    fn begin_halt(&mut self) {
        self.halted = true;
        self.count_blocked();
    }

    fn count_blocked(&mut self) {
        if !self.blocked {
            self.blocked = true;
            stat::count_wait_on(self.threads, stat::Waits::Halted);
        }
    }
}

impl Drop for Wait {
    #[inline]
    fn drop(&mut self) {
        if self.halted {
            (self.threads.resume)();
        }
    }
}

/// The set of CPUs that are halted, or about to halt, until the same event: one bit per CPU.
#[derive(Debug, Default)]
pub(crate) struct Halted(AtomicU64);

impl Halted {
    /// Creates an empty set.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Wakes the halted CPUs. The caller has already performed the store that they wait for.
    #[inline]
    pub(super) fn wake(&self, threads: &Functions) {
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) != 0 {
            self.wake_all(threads);
        }
    }

    #[cold]
    fn wake_all(&self, threads: &Functions) {
        let mut cpus = self.0.swap(0, Ordering::SeqCst);
        while cpus != 0 {
            let cpu = CpuId::new(cpus.trailing_zeros() as u16);
            cpus &= cpus - 1;
            threads.step(Step::Wake(cpu));
            (threads.wake)(cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_NAP, LONGEST_NAP, nap_after};

    #[test]
    fn naps_double_up_to_the_longest() {
        assert_eq!(nap_after(0), FIRST_NAP);
        assert_eq!(nap_after(FIRST_NAP), 2 * FIRST_NAP);
        assert_eq!(nap_after(LONGEST_NAP / 2), LONGEST_NAP);
        assert_eq!(nap_after(LONGEST_NAP), LONGEST_NAP);
    }
}
