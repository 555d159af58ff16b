//! One thin layer under every lock, entry atomic, wait and invalidation (design rule 16).
//!
//! A machine installs [`Hooks`] once. With the feature `interleave` each step is handed to
//! `Hooks::step`, so that a scheduler can own every choice in tests; without it `step` compiles
//! to nothing.
//!
//! # How a wait ends
//! No wait spins without bound: where CPUs are virtual, a CPU that spins burns the host core that the
//! CPU it waits for may need. A [`Wait`] spins for `SPINS` turns of [`relax`] and then halts the CPU
//! through [`Hooks::halt`], in one of two ways:
//! - *A nap.* The wait ends with a store that wakes no CPU: the release of a [`RawLock`], the last
//!   reader of a [`SpreadLock`] that leaves. A timer ends the nap. Naps grow from `FIRST_NAP` to
//!   `LONGEST_NAP`, so that a short section costs its waiters little and a long one costs the
//!   host little. The release stays one store.
//! - *A halt until woken*, for what may be held long: the writer of a [`SpreadLock`]. The CPU
//!   announces itself in the lock's set of halted CPUs, looks at the lock again, and halts; the
//!   writer releases, then looks at the set and wakes the CPUs in it through [`Hooks::wake`]. Both
//!   write before they look, with a full barrier between, so at least one of them sees the other.
//!   A wake that comes between the look and the halt is not lost: it ends the halt.
//!
//! A halted CPU still serves the invalidations that other CPUs ask of it: their interrupt ends the
//! halt, and the CPU answers before it halts again.
//!
//! # What may be held over a halt, and over a change of threads
//! A halt gives the host core away, but not the CPU: the thread stays where it is. Any lock may
//! be held over it, as over a spin.
//!
//! Where a thread gives its CPU to another one, it may hold no lock but those that
//! [sleep](Rank::sleeps): an address space's, and a scan's. A long operation on an address space
//! looks now and then whether it should give way ([`pause_due`]) and does so with the lock held
//! ([`pause`]). Who waits for a lock that sleeps may therefore wait for a thread of its own CPU: it
//! lets the ready threads run first, through [`Hooks::give_way`], and halts only where there is
//! none but others that wait, and then for a nap. So that nobody in turn waits for *its* locks meanwhile, a thread that takes a lock that
//! sleeps holds no other than such; debug builds check it.

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

/// Where a thread of control is about to act on shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is about to take a lock.
    Lock(Rank),
    /// It has just released a lock.
    Unlock(Rank),
    /// It is about to read or write a page-table entry atomically.
    Entry,
    /// It found what it waits for not yet there, and tries again.
    Wait,
    /// It is about to invalidate translations.
    Invalidate,
    /// It is about to name itself in a set of halted CPUs.
    Announce,
    /// This CPU is about to halt until another one wakes it.
    Halt(usize),
    /// It is about to wake this CPU.
    Wake(usize),
}

/// To whom a thread gave way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveWay {
    /// No other thread is ready on the CPU, or the CPU runs none.
    ToNobody,
    /// Only to threads that wait for locks themselves: others must run elsewhere for any of them to go on.
    ToWaiters,
    /// To a thread that can go on.
    ToOthers,
}

/// What the machine does for this layer.
#[derive(Debug)]
pub struct Hooks {
    /// One step of a spin wait: see [`Machine::relax`](crate::Machine::relax).
    pub relax: fn(),
    /// The number of the CPU that calls, below [`MAX_CPUS`](crate::addr::MAX_CPUS).
    pub cpu: fn() -> usize,
    /// Halts the calling CPU until [`wake`](Hooks::wake) is called for it or, with a limit, for as
    /// many nanoseconds. Serves invalidations as [`relax`](Hooks::relax) does, and may return early.
    pub halt: fn(limit: Option<u32>),
    /// Ends the halt of a CPU. If that CPU is not halted, its next halt may end at once.
    pub wake: fn(cpu: usize),
    /// Lets the threads run first that are ready on the calling CPU. The calling thread holds no lock
    /// but those that [sleep](Rank::sleeps), and goes on on the same CPU. `waits`: it waits for such a lock.
    pub give_way: fn(waits: bool) -> GaveWay,
    /// Whether the calling thread should give way now. That it asks is a scheduling point.
    pub pause_due: fn() -> bool,
    /// A wait in which the calling CPU halted is over: what came meanwhile, and is not the wait's
    /// business, is looked at.
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

/// Installs the machine's hooks. Until then a wait is a spin-loop hint, the CPU is 0, and the
/// order of locks is not checked (with the feature `std` it always is).
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

/// The CPU that calls, as the hooks know it.
pub fn cpu() -> usize {
    (hooks().cpu)()
}

/// One step of a wait for another thread of control.
pub fn relax() {
    step(Step::Wait);
    (hooks().relax)();
}

/// Whether the calling thread should give way: asked now and then in the midst of long operations. Cheap,
/// but not free: once for some hundred entries or areas, not for each.
#[inline]
#[track_caller]
pub fn pause_due() -> bool {
    assert_may_sleep();
    (hooks().pause_due)()
}

/// Lets other threads run. The caller holds no lock but those that [sleep](Rank::sleeps), and goes on on the
/// same CPU.
///
/// # Panics
/// In debug builds, if another lock is held.
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

/// The scheduling points of a loop with short rounds: one in so many.
#[derive(Clone, Copy, Debug)]
pub struct PausePoints {
    every: u32,
    left: u32,
}

impl PausePoints {
    /// One in `every` rounds, at least 1.
    #[must_use]
    pub const fn every(every: u32) -> Self {
        Self { every, left: every }
    }

    /// None: for callers that hold other locks.
    #[must_use]
    pub const fn never() -> Self {
        Self { every: 0, left: 0 }
    }

    /// Ends a round. The caller holds no lock but those that [sleep](Rank::sleeps).
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

/// Lets the threads run first that are ready on this CPU.
#[cold]
#[track_caller]
fn give_way(waits: bool) -> GaveWay {
    assert_may_sleep();
    // Locks are known by the CPU that holds them, of which another thread has its own.
    let held = take_held();
    let gave = (hooks().give_way)(waits);
    restore_held(held);
    gave
}

/// Marks a step of the calling thread of control.
#[cfg(feature = "interleave")]
pub fn step(step: Step) {
    if let Some(hook) = hooks().step {
        hook(step);
    }
}

/// Marks a step of the calling thread of control: nothing without the feature `interleave`.
#[cfg(not(feature = "interleave"))]
#[inline(always)]
pub fn step(_step: Step) {}
