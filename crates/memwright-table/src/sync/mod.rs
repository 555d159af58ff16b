//! One thin layer under every lock, entry atomic, wait and invalidation (design rule 16).
//!
//! A machine installs [`Hooks`] once. With the feature `interleave` each step is handed to
//! `Hooks::step`, so that a scheduler can own every choice in tests; without it `step` compiles
//! to nothing.

mod lock;
mod order;
mod spread;
pub mod stat;

pub use lock::{Lock, LockGuard, RawLock};
pub use order::{Held, MAX_HELD, RANKS, Rank, assert_none_held, held};
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
}

/// What the machine does for this layer.
#[derive(Debug)]
pub struct Hooks {
    /// One step of a spin wait: see [`Machine::relax`](crate::Machine::relax).
    pub relax: fn(),
    /// The number of the CPU that calls, below [`MAX_CPUS`](crate::addr::MAX_CPUS).
    pub cpu: fn() -> usize,
    /// Called before each step, with the feature `interleave`.
    pub step: Option<fn(Step)>,
}

static DEFAULT_HOOKS: Hooks = Hooks {
    relax: core::hint::spin_loop,
    cpu: || 0,
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

/// A wait for a lock. In debug builds of a kernel it ends in a panic if nobody releases the lock: on a
/// host a thread may sleep for as long as it likes.
struct Waiting {
    rank: Rank,
    steps: u32,
}

impl Waiting {
    /// Whether a wait may take too long.
    const LIMITED: bool = cfg!(all(debug_assertions, not(any(test, feature = "std"))));
    /// Steps after which the lock counts as lost: minutes, whatever a step costs.
    const MOST: u32 = 1 << 28;

    fn new(rank: Rank) -> Self {
        Self { rank, steps: 0 }
    }

    /// One step.
    fn relax(&mut self) {
        if Self::LIMITED {
            self.steps += 1;
            assert!(
                self.steps < Self::MOST,
                "nobody releases a lock of rank {:?}",
                self.rank
            );
        }
        relax();
    }
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
