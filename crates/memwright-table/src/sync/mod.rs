//! The layer under every lock, entry atomic, wait and invalidation (rule: one-lock-order).
//!
//! A machine installs [`Hooks`] once. With the feature `interleave`, each step is passed to `Hooks::step`, so that a
//! test scheduler can control every choice. Without it, `step` compiles to nothing.
//!
//! # How a wait ends
//! No wait spins without bound: on virtual CPUs, a spinning CPU occupies the host core that the CPU it waits for may
//! need. A [`Wait`] spins for `SPINS` turns of [`relax`] and then halts the CPU through [`Hooks::halt`], in one of two
//! ways:
//! - *A nap*, which is a halt with a time limit, where the wait ends with a store that wakes no CPU: the release of a
//!   [`RawLock`], or the last reader of a [`SpreadLock`] leaving. Naps grow from `FIRST_NAP` to `LONGEST_NAP`, so that
//!   a short critical section costs its waiters little and a long one costs the host little. The release stays one
//!   store.
//! - *A halt until woken*, for a lock that may be held long: by the writer of a [`SpreadLock`]. The CPU announces
//!   itself in the lock's set of halted CPUs, checks the lock again, and halts. The writer releases the lock, then
//!   reads the set and wakes the CPUs in it through [`Hooks::wake`]. Both write before they read, with a full barrier
//!   between, so at least one of them sees the other's write. A wake that comes between the check and the halt is not
//!   lost: it ends the halt.
//!
//! A halted CPU still serves the invalidations that other CPUs request from it: their interrupt ends the halt, and the
//! CPU serves them before it halts again.
//!
//! # What may be held across a halt, and across a thread switch
//! A halt releases the host core, but not the CPU: the thread stays on it. A thread is allowed to hold any lock across
//! a halt, as across a spin.
//!
//! A thread that yields its CPU to another thread is allowed to hold only locks that [sleep](Rank::sleeps), such as
//! that of an address space or of a scan. A long operation on an address space checks at intervals whether it should
//! yield ([`pause_due`]), and yields with the lock held ([`pause`]). A thread that waits for a sleeping lock may
//! therefore wait for a thread of its own CPU. It first yields to the runnable threads, through [`Hooks::give_way`]. It
//! halts only if all of those wait as well, and then only for a nap. A thread that acquires a sleeping lock must hold
//! no lock of another kind, so that no thread waits for that one meanwhile; debug builds check it.

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

/// A point at which a thread acts on shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is about to acquire a lock.
    Lock(Rank),
    /// It has just released a lock.
    Unlock(Rank),
    /// It is about to read or write a page-table entry atomically.
    Entry,
    /// The event that it waits for has not happened yet, and it checks again.
    Wait,
    /// It is about to invalidate translations.
    Invalidate,
    /// It is about to announce itself in a set of halted CPUs.
    Announce,
    /// This CPU is about to halt until another one wakes it.
    Halt(usize),
    /// It is about to wake this CPU.
    Wake(usize),
}

/// Whether other threads ran when a thread yielded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveWay {
    /// No other thread is runnable on the CPU, or the machine has no threads.
    ToNobody,
    /// Only threads that wait for locks themselves ran: threads on other CPUs must run before any of them can continue.
    ToWaiters,
    /// A thread that can make progress ran.
    ToOthers,
}

/// What the machine provides for this layer.
#[derive(Debug)]
pub struct Hooks {
    /// Performs one step of a spin wait: see [`Machine::relax`](crate::Machine::relax).
    pub relax: fn(),
    /// Returns the number of the calling CPU, below [`MAX_CPUS`](crate::addr::MAX_CPUS).
    pub cpu: fn() -> usize,
    /// Halts the calling CPU until [`wake`](Hooks::wake) is called for it or, with a limit, for at most that many
    /// nanoseconds. Serves invalidations as [`relax`](Hooks::relax) does, and may return early.
    pub halt: fn(limit: Option<u32>),
    /// Ends the halt of a CPU. If that CPU is not halted, its next halt may end at once.
    pub wake: fn(cpu: usize),
    /// Yields to the runnable threads of the calling CPU. The calling thread holds only locks that
    /// [sleep](Rank::sleeps), and continues on the same CPU. `waits`: the thread waits for such a lock.
    pub give_way: fn(waits: bool) -> GaveWay,
    /// Returns whether the calling thread should yield now. The call itself is a scheduling point.
    pub pause_due: fn() -> bool,
    /// Called after a wait in which the calling CPU halted, to handle what arrived meanwhile and does not concern the
    /// wait.
    pub resume: fn(),
    /// Called before each step, with the feature `interleave`.
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

/// Null until hooks are installed.
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the machine's hooks. Until then a wait is a spin-loop hint, the CPU is 0, and the lock order is not checked
/// (with the feature `std` it always is).
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

/// The calling CPU, according to the hooks.
pub fn cpu() -> usize {
    (hooks().cpu)()
}

/// Performs one step of a wait for another thread.
pub fn relax() {
    step(Step::Wait);
    (hooks().relax)();
}

/// Returns whether the calling thread should yield. Long operations check this at intervals: it is cheap but not free,
/// so check once per some hundred entries or areas, not for each.
///
/// # Panics
/// In debug builds, if a lock is held that does not sleep.
#[inline]
#[track_caller]
pub fn pause_due() -> bool {
    assert_may_sleep();
    (hooks().pause_due)()
}

/// Lets other threads run. The caller holds only locks that [sleep](Rank::sleeps), and continues on the same CPU.
///
/// # Panics
/// In debug builds, if a lock is held that does not sleep.
#[cold]
#[track_caller]
pub fn pause() {
    give_way(false);
}

/// A scheduling point: [`pause`]s if that is [due](pause_due).
#[inline]
#[track_caller]
pub fn pause_point() {
    if pause_due() {
        pause();
    }
}

/// The scheduling points of a loop with short rounds: one in a number of rounds.
#[derive(Clone, Copy, Debug)]
pub struct PausePoints {
    every: u32,
    left: u32,
}

impl PausePoints {
    /// Creates a count with one scheduling point in `every` rounds. `every` must be at least 1.
    #[must_use]
    pub const fn every(every: u32) -> Self {
        Self { every, left: every }
    }

    /// Creates a count without scheduling points, for callers that hold locks that do not sleep.
    #[must_use]
    pub const fn never() -> Self {
        Self { every: 0, left: 0 }
    }

    /// Ends a round. The caller holds only locks that [sleep](Rank::sleeps).
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

/// Yields to the runnable threads of this CPU. `waits`: the calling thread waits for a lock.
#[cold]
#[track_caller]
fn give_way(waits: bool) -> GaveWay {
    assert_may_sleep();
    // Held locks are recorded per CPU, and the threads that run meanwhile hold other locks.
    let held = take_held();
    let gave = (hooks().give_way)(waits);
    restore_held(held);
    gave
}

/// Marks a step of the calling thread.
#[cfg(feature = "interleave")]
pub fn step(step: Step) {
    if let Some(hook) = hooks().step {
        hook(step);
    }
}

/// Marks a step of the calling thread. Without the feature `interleave` it does nothing.
#[cfg(not(feature = "interleave"))]
#[inline(always)]
pub fn step(_step: Step) {}
