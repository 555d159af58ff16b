//! Waits that spin for a while and then halt the CPU; see the module above.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::{GaveWay, Rank, Step, cpu, hooks, relax, stat, step};

/// Turns of a wait before it halts: longer than the short sections of this kernel on a CPU that runs.
/// None where a scheduler tries every order: spinning longer is waiting, and adds no order.
pub const SPINS: u32 = if cfg!(feature = "interleave") { 0 } else { 256 };
/// Nanoseconds of the first nap. Each is twice as long as the one before, up to the longest.
const FIRST_NAP: u32 = 16_384;
const LONGEST_NAP: u32 = 1 << 20;

/// How long the nap after one of `before` nanoseconds is; 0 is none.
const fn nap_after(before: u32) -> u32 {
    if before == 0 {
        FIRST_NAP
    } else if before < LONGEST_NAP {
        before * 2
    } else {
        LONGEST_NAP
    }
}

/// One wait for another thread of control.
///
/// In debug builds of a kernel a wait for a lock that naps ends in a panic if the lock is not
/// released for minutes: on a host a thread may sleep for as long as it likes.
#[derive(Debug)]
#[must_use = "a wait does nothing until it takes turns"]
pub struct Wait {
    /// The lock's, if it is one that is waited for.
    rank: Option<Rank>,
    /// Turns of spinning that are left.
    spins: u32,
    /// Whether it has taken a turn.
    begun: bool,
    /// Nanoseconds of the last nap.
    nap: u32,
    /// Nanoseconds of all naps.
    napped: u64,
    /// Whether other threads of the CPU wait too, and none can go on.
    accompanied: bool,
    /// Whether it is counted as one that did more than spin.
    blocked: bool,
    /// Whether the CPU halted at all.
    halted: bool,
}

impl Wait {
    /// Whether a wait may take too long.
    const LIMITED: bool = cfg!(all(debug_assertions, not(any(test, feature = "std"))));
    /// Nanoseconds of naps after which the lock counts as lost: five minutes.
    const MOST: u64 = 300_000_000_000;

    /// A wait for what is no lock, and wakes no CPU when it comes.
    pub const fn new() -> Self {
        Self::of(None)
    }

    /// A wait for a lock.
    pub(super) const fn for_lock(rank: Rank) -> Self {
        Self::of(Some(rank))
    }

    const fn of(rank: Option<Rank>) -> Self {
        Self {
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

    /// Waits for a moment: spins at first, then naps.
    #[inline]
    pub fn turn(&mut self) {
        if self.spin() || self.give_way() {
            return;
        }
        self.begin_halt();
        let nap = self.next_nap();
        self.limit();
        step(Step::Wait);
        (hooks().halt)(Some(nap));
    }

    /// Waits for a moment, for what ends with [`Halted::wake`]: spins at first, then halts until then.
    /// `over` says whether it has ended.
    pub(super) fn turn_until(&mut self, halted: &Halted, over: impl Fn() -> bool) {
        if self.spin() || self.give_way() {
            return;
        }
        let cpu = cpu();
        let this = 1 << (cpu % u64::BITS as usize);
        step(Step::Announce);
        halted.0.fetch_or(this, Ordering::SeqCst);
        // The announcement comes before the look, as in `wake` the release does.
        fence(Ordering::SeqCst);
        if !over() {
            self.begin_halt();
            step(Step::Halt(cpu));
            // What the CPU's other threads wait for may end without a wake.
            let limit = self.accompanied.then(|| self.next_nap());
            (hooks().halt)(limit);
        }
        // A halt may have ended for another reason.
        halted.0.fetch_and(!this, Ordering::Relaxed);
    }

    /// Takes a turn of spinning, if any is left.
    #[inline]
    fn spin(&mut self) -> bool {
        if !self.begun {
            self.begun = true;
            stat::count_wait(stat::Waits::Contended);
        }
        if self.spins == 0 {
            return false;
        }
        self.spins -= 1;
        relax();
        true
    }

    /// Counts a nap of a wait that must not take for ever.
    fn limit(&mut self) {
        if let Some(rank) = self.rank.filter(|_| Self::LIMITED) {
            self.napped += u64::from(self.nap);
            assert!(
                self.napped < Self::MOST,
                "a lock of rank {rank:?} is not released"
            );
        }
    }

    /// Lets other threads of the CPU run, if the lock may be held by one of them. Returns whether one ran that
    /// does not wait itself.
    fn give_way(&mut self) -> bool {
        if !self.rank.is_some_and(Rank::sleeps) {
            return false;
        }
        let gave = super::give_way(true);
        self.accompanied = gave == GaveWay::ToWaiters;
        if gave != GaveWay::ToNobody {
            self.count_blocked();
            // Other CPUs' invalidations are served: threads that only wait must not keep them waiting.
            relax();
        }
        gave == GaveWay::ToOthers
    }

    /// How long the next nap is.
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
            stat::count_wait(stat::Waits::Halted);
        }
    }
}

impl Default for Wait {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Wait {
    #[inline]
    fn drop(&mut self) {
        if self.halted {
            (hooks().resume)();
        }
    }
}

/// The CPUs that are halted until one thing ends, or are about to halt: a bit for each.
#[derive(Debug, Default)]
pub(crate) struct Halted(AtomicU64);

impl Halted {
    /// No CPU is halted.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Wakes the CPUs that are halted. The caller has ended what they wait for.
    #[inline]
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) != 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let mut cpus = self.0.swap(0, Ordering::SeqCst);
        while cpus != 0 {
            let cpu = cpus.trailing_zeros() as usize;
            cpus &= cpus - 1;
            step(Step::Wake(cpu));
            (hooks().wake)(cpu);
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
