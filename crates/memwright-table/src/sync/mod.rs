//! The layer that all locks, waits, atomic accesses to entries, and invalidations use (rule: one-lock-order).
//!
//! All of these are generic over a type that implements [`Threads`], usually
//! [`Machine::Threads`](crate::Machine::Threads). With the feature `interleave`, [`step()`] passes each step to
//! [`Threads::step`], so that a test scheduler can control the order of all steps. Without the feature, `step` compiles
//! to nothing.
//!
//! # How a wait ends
//! No wait spins without bound: a spinning virtual CPU occupies a host core that the virtual CPU for which it waits may
//! need. A [`Wait`] spins for `SPINS` turns of [`relax`] and then halts the CPU through [`Threads::halt`], in one of
//! two ways:
//! - *A nap*, which is a halt with a time limit. It is used if the wait ends by a store that wakes no CPU: the release
//!   of a [`RawLock`], or of a [`SpreadLock`] by its last reader. This keeps the release at one store. Naps grow from
//!   `FIRST_NAP` to `LONGEST_NAP`, so that a waiter loses little time to a short critical section, and the host loses
//!   little time to a long one.
//! - *A halt until woken*. It is used for a lock that may be held for a long time, that is, by the writer of a
//!   [`SpreadLock`]. The waiting CPU adds itself to the lock's set of halted CPUs, checks the lock again, and halts.
//!   The writer releases the lock, then reads the set and wakes the CPUs in it through [`Threads::wake`]. Both CPUs
//!   write before they read, with a full barrier in between, so at least one of them reads the other's write. A wake
//!   between the check and the halt is not lost, because it ends the halt.
//!
//! A halted CPU still serves the invalidations that other CPUs request from it. Their interrupt ends the halt, and the
//! CPU serves the invalidations before it halts again.
//!
//! # Locks held during a halt, and during a thread switch
//! A halt releases the host core, but the thread keeps its CPU. A thread may hold any lock during a halt, as during a
//! spin.
//!
//! A thread that yields its CPU to another thread may hold only locks that [sleep](Rank::sleeps), such as that of an
//! address space or of a scan. A long operation on an address space checks at intervals whether it should yield
//! ([`pause_due`]), and yields with the lock held ([`pause`]). A thread that waits for a sleeping lock may therefore
//! wait for a thread of its own CPU. So it first yields to the runnable threads, through [`Threads::give_way`]. It
//! halts only if all of those are waiting as well, and then only for a nap. A thread that acquires a sleeping lock must
//! hold no lock that does not sleep, because another thread could spin on that lock in the meantime; debug builds check
//! this.

mod halt;
mod lock;
mod order;
mod spread;
pub mod stat;
mod threads;

pub(crate) use halt::Halted;
pub use halt::{SPINS, Wait};
pub use lock::{Lock, LockGuard, RawLock};
pub use order::{Held, MAX_HELD, RANKS, Rank, held};
use order::{restore_held, take_held};
pub use spread::{SpreadLock, SpreadReadGuard, SpreadWriteGuard};
pub use threads::{Functions, GaveWay, OneCpu, Threads};

use core::marker::PhantomData;

use crate::addr::CpuId;

/// A point at which a thread accesses shared memory, or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The thread is about to acquire a lock.
    Lock(Rank),
    /// The thread has just released a lock.
    Unlock(Rank),
    /// The thread is about to read or write a page-table entry atomically.
    Entry,
    /// The thread waits: the event has not happened yet, and the thread is about to check again.
    Wait,
    /// The thread is about to invalidate translations.
    Invalidate,
    /// The thread is about to add its CPU to a set of halted CPUs.
    Announce,
    /// The CPU with this number is about to halt until another CPU wakes it.
    Halt(CpuId),
    /// The thread is about to wake the CPU with this number.
    Wake(CpuId),
}

/// Panics, in debug builds, if the caller holds a lock that does not [sleep](Rank::sleeps). Called at points where the
/// thread may yield its CPU.
///
/// # Panics
/// If such a lock is held.
#[inline(always)]
#[track_caller]
pub fn assert_may_sleep<H: Threads>() {
    order::check_may_sleep(H::functions());
}

/// Panics, in debug builds, if the caller holds a lock under which the heap must not allocate frames: one of
/// [`Rank::FrameCache`] or a later rank. The heap calls this for each allocation, so that such a caller is found even
/// if the heap has room.
///
/// # Panics
/// If such a lock is held.
#[inline(always)]
#[track_caller]
pub fn assert_may_allocate<H: Threads>() {
    order::check_may_allocate(H::functions());
}

/// Panics, in debug builds, if the caller holds a lock. Called before a wait for an event, and before the return to
/// user mode.
///
/// # Panics
/// If a lock is held.
#[inline(always)]
#[track_caller]
pub fn assert_none_held<H: Threads>() {
    order::check_none_held(H::functions());
}

/// Performs one step of a wait for another thread.
pub fn relax<H: Threads>() {
    step::<H>(Step::Wait);
    H::relax();
}

/// Returns whether the calling thread should yield. Long operations should call this once every few hundred entries or
/// areas: a call for each would cost too much.
///
/// # Panics
/// In debug builds, if a lock is held that does not sleep.
#[inline]
#[track_caller]
pub fn pause_due<H: Threads>() -> bool {
    assert_may_sleep::<H>();
    H::pause_due()
}

/// Yields to other threads. The caller holds only locks that [sleep](Rank::sleeps), and continues on the same CPU.
///
/// # Panics
/// In debug builds, if a lock is held that does not sleep.
#[cold]
#[track_caller]
pub fn pause<H: Threads>() {
    give_way(H::functions(), false);
}

/// A scheduling point: yields to other threads if [`pause_due`] returns true.
#[inline]
#[track_caller]
pub fn pause_point<H: Threads>() {
    if pause_due::<H>() {
        pause::<H>();
    }
}

/// The scheduling points of a loop with short rounds: one scheduling point every `every` rounds.
#[derive(Debug)]
pub struct PausePoints<H>(Rounds, PhantomData<fn() -> H>);

#[derive(Debug)]
struct Rounds {
    every: u32,
    left: u32,
}

impl Rounds {
    const fn new(every: u32) -> Self {
        Self { every, left: every }
    }
}

impl<H: Threads> PausePoints<H> {
    /// Creates a counter with one scheduling point every `every` rounds. `every` must be at least 1.
    #[must_use]
    pub const fn every(every: u32) -> Self {
        Self(Rounds::new(every), PhantomData)
    }

    /// Creates a counter without scheduling points, for callers that hold locks that do not sleep.
    #[must_use]
    pub const fn never() -> Self {
        Self(Rounds::new(0), PhantomData)
    }

    /// Ends a round, and performs the scheduling point if it is due. The caller holds only locks that
    /// [sleep](Rank::sleeps), unless the counter has no scheduling points.
    #[inline]
    #[track_caller]
    pub fn round(&mut self) {
        let Self(rounds, _) = self;
        rounds.left = rounds.left.wrapping_sub(1);
        if rounds.left == 0 {
            rounds.left = rounds.every;
            pause_point::<H>();
        }
    }
}

/// Yields to the runnable threads of this CPU. `waits` states whether the calling thread is waiting for a lock.
#[cold]
#[track_caller]
fn give_way(threads: &Functions, waits: bool) -> GaveWay {
    order::check_may_sleep(threads);
    // The record of held locks is per CPU, and the threads that run next hold other locks.
    let held = take_held(threads);
    let gave = (threads.give_way)(waits);
    restore_held(threads, held);
    gave
}

/// Passes a step of the calling thread to [`Threads::step`] if the feature `interleave` is enabled. Otherwise does
/// nothing.
#[inline(always)]
pub fn step<H: Threads>(step: Step) {
    if cfg!(feature = "interleave") {
        H::step(step);
    }
}
