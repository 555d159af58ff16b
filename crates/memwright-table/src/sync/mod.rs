//! The layer that all locks, waits, atomic accesses to entries, and invalidations use (rule: one-lock-order).
//!
//! A machine installs [`Hooks`] once. With the feature `interleave`, [`step`] passes each step to `Hooks::step`, so
//! that a test scheduler can control the order of all steps. Without the feature, `step` compiles to nothing.
//!
//! # How a wait ends
//! No wait spins without bound: a spinning virtual CPU occupies a host core that the virtual CPU for which it waits may
//! need. A [`Wait`] spins for `SPINS` turns of [`relax`] and then halts the CPU through [`Hooks::halt`], in one of two
//! ways:
//! - *A nap*, which is a halt with a time limit. It is used if the wait ends by a store that wakes no CPU: the release
//!   of a [`RawLock`], or of a [`SpreadLock`] by its last reader. This keeps the release at one store. Naps grow from
//!   `FIRST_NAP` to `LONGEST_NAP`, so that a waiter loses little time to a short critical section, and the host loses
//!   little time to a long one.
//! - *A halt until woken*. It is used for a lock that may be held for a long time, that is, by the writer of a
//!   [`SpreadLock`]. The waiting CPU adds itself to the lock's set of halted CPUs, checks the lock again, and halts.
//!   The writer releases the lock, then reads the set and wakes the CPUs in it through [`Hooks::wake`]. Both CPUs write
//!   before they read, with a full barrier in between, so at least one of them reads the other's write. A wake between
//!   the check and the halt is not lost, because it ends the halt.
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
//! wait for a thread of its own CPU. So it first yields to the runnable threads, through [`Hooks::give_way`]. It halts
//! only if all of those are waiting as well, and then only for a nap. A thread that acquires a sleeping lock must hold
//! no lock that does not sleep, because another thread could spin on that lock in the meantime; debug builds check
//! this.

mod halt;
mod lock;
mod order;
mod spread;
pub mod stat;

pub(crate) use halt::Halted;
pub use halt::{SPINS, Wait};
pub use lock::{Lock, LockGuard, RawLock};
pub use order::{
    Held, MAX_HELD, RANKS, Rank, assert_may_allocate, assert_may_sleep, assert_none_held, held,
};
use order::{restore_held, take_held};
pub use spread::{SpreadLock, SpreadReadGuard, SpreadWriteGuard};

use core::sync::atomic::{AtomicPtr, Ordering};

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
    Halt(usize),
    /// The thread is about to wake the CPU with this number.
    Wake(usize),
}

/// Which threads ran when a thread yielded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveWay {
    /// No other thread is runnable on the CPU, or the machine has no threads.
    ToNobody,
    /// Only threads ran that are waiting for locks. None of them can continue before a thread on another CPU runs.
    ToWaiters,
    /// A thread that can make progress ran.
    ToOthers,
}

/// The functions that the machine provides for this layer.
#[derive(Debug)]
pub struct Hooks {
    /// Performs one step of a spin wait, like [`Machine::relax`](crate::Machine::relax).
    pub relax: fn(),
    /// Returns the number of the calling CPU, below [`MAX_CPUS`](crate::addr::MAX_CPUS).
    pub cpu: fn() -> usize,
    /// Halts the calling CPU until [`wake`](Hooks::wake) is called for it or, with a limit, for at most that many
    /// nanoseconds. Serves invalidations as [`relax`](Hooks::relax) does, and may return early.
    pub halt: fn(limit: Option<u32>),
    /// Ends the halt of a CPU. If that CPU is not halted, its next halt may end at once.
    pub wake: fn(cpu: usize),
    /// Yields to the runnable threads of the calling CPU. The calling thread holds only locks that
    /// [sleep](Rank::sleeps), and continues on the same CPU. `waits` is whether the thread is waiting for such a lock.
    pub give_way: fn(waits: bool) -> GaveWay,
    /// Returns whether the calling thread should yield now. The call itself is a scheduling point.
    pub pause_due: fn() -> bool,
    /// Called after a wait in which the calling CPU halted. Handles the interrupts that arrived during the halt and do
    /// not concern the wait.
    pub resume: fn(),
    /// Called at each step of a thread, if the feature `interleave` is enabled.
    pub step: Option<fn(Step)>,
}

static DEFAULT_HOOKS: Hooks = Hooks {
    relax: core::hint::spin_loop,
    cpu: || 0,
    halt: |_| core::hint::spin_loop(),
    wake: |_| (),
    give_way: |_| GaveWay::ToNobody,
    pause_due: || false,
    resume: || (),
    step: None,
};

/// The installed hooks; null until [`install`] is called.
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the machine's hooks. Before this call, a turn of a wait is a spin-loop hint, the CPU number is 0, and the
/// lock order is checked only with the feature `std`.
pub fn install(hooks: &'static Hooks) {
    HOOKS.store(core::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

fn hooks() -> &'static Hooks {
    let installed = HOOKS.load(Ordering::Acquire);
    // SAFETY: the pointer is null or came from the `&'static Hooks` given to `install`.
    unsafe { installed.as_ref() }.unwrap_or(&DEFAULT_HOOKS)
}

/// Whether `install` has been called.
#[cfg(all(debug_assertions, not(any(test, feature = "std"))))]
fn installed() -> bool {
    !HOOKS.load(Ordering::Relaxed).is_null()
}

/// The number of the calling CPU, from [`Hooks::cpu`].
pub fn cpu() -> usize {
    (hooks().cpu)()
}

/// Performs one step of a wait for another thread.
pub fn relax() {
    step(Step::Wait);
    (hooks().relax)();
}

/// Returns whether the calling thread should yield. Long operations should call this once every few hundred entries or
/// areas: a call for each would cost too much.
///
/// # Panics
/// In debug builds, if a lock is held that does not sleep.
#[inline]
#[track_caller]
pub fn pause_due() -> bool {
    assert_may_sleep();
    (hooks().pause_due)()
}

/// Yields to other threads. The caller holds only locks that [sleep](Rank::sleeps), and continues on the same CPU.
///
/// # Panics
/// In debug builds, if a lock is held that does not sleep.
#[cold]
#[track_caller]
pub fn pause() {
    give_way(false);
}

/// A scheduling point: yields to other threads if [`pause_due`] returns true.
#[inline]
#[track_caller]
pub fn pause_point() {
    if pause_due() {
        pause();
    }
}

/// The scheduling points of a loop with short rounds: one scheduling point every `every` rounds.
#[derive(Clone, Copy, Debug)]
pub struct PausePoints {
    every: u32,
    left: u32,
}

impl PausePoints {
    /// Creates a counter with one scheduling point every `every` rounds. `every` must be at least 1.
    #[must_use]
    pub const fn every(every: u32) -> Self {
        Self { every, left: every }
    }

    /// Creates a counter without scheduling points, for callers that hold locks that do not sleep.
    #[must_use]
    pub const fn never() -> Self {
        Self { every: 0, left: 0 }
    }

    /// Ends a round, and performs the scheduling point if it is due. The caller holds only locks that
    /// [sleep](Rank::sleeps), unless the counter has no scheduling points.
    #[inline]
    #[track_caller]
    pub fn round(&mut self) {
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 {
            self.left = self.every;
            pause_point();
        }
    }
}

/// Yields to the runnable threads of this CPU. `waits` is whether the calling thread is waiting for a lock.
#[cold]
#[track_caller]
fn give_way(waits: bool) -> GaveWay {
    assert_may_sleep();
    // The record of held locks is per CPU, and the threads that run next hold other locks.
    let held = take_held();
    let gave = (hooks().give_way)(waits);
    restore_held(held);
    gave
}

/// Passes a step of the calling thread to [`Hooks::step`].
#[cfg(feature = "interleave")]
pub fn step(step: Step) {
    if let Some(hook) = hooks().step {
        hook(step);
    }
}

/// Does nothing. With the feature `interleave`, passes a step of the calling thread to [`Hooks::step`].
#[cfg(not(feature = "interleave"))]
#[inline(always)]
pub fn step(_step: Step) {}
