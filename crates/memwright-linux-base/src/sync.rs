//! Locks, waits and scheduling points. They are those of `memwright_table`, instantiated with the machine on which the
//! personality runs.

use memwright_table::{CpuId, sync};

pub use memwright_table::grow::{Grows, lock_with_room, lock_with_room_for};
pub use memwright_table::sync::Rank;

/// The functions of the machine that locks and waits use. On bare metal these are the functions of the linked machine,
/// so that they can be inlined.
#[cfg(target_os = "none")]
pub type Threads = memwright_table::Linked;
/// The functions of the machine that locks and waits use. On a host, where tests run, the machine has one CPU.
#[cfg(not(target_os = "none"))]
pub type Threads = memwright_table::OneCpu;

/// A lock; see [`sync::Lock`].
pub type Lock<T> = sync::Lock<T, Threads>;
/// Exclusive access to the value of a lock; see [`sync::LockGuard`].
pub type LockGuard<'a, T> = sync::LockGuard<'a, T, Threads>;
/// The scheduling points of a loop; see [`sync::PausePoints`].
pub type PausePoints = sync::PausePoints<Threads>;

/// The calling CPU.
#[inline(always)]
pub fn cpu() -> CpuId {
    <Threads as sync::Threads>::cpu()
}

/// Performs one step of a wait for another thread.
#[inline(always)]
pub fn relax() {
    sync::relax::<Threads>();
}

/// Yields to other threads if the calling thread should yield (a scheduling point).
///
/// # Panics
/// In debug builds, if a lock is held that does not sleep.
#[inline(always)]
#[track_caller]
pub fn pause_point() {
    sync::pause_point::<Threads>();
}

/// Panics, in debug builds, if the caller holds a lock that does not sleep.
///
/// # Panics
/// If such a lock is held.
#[inline(always)]
#[track_caller]
pub fn assert_may_sleep() {
    sync::assert_may_sleep::<Threads>();
}

/// Panics, in debug builds, if the caller holds a lock under which the heap must not allocate frames.
///
/// # Panics
/// If such a lock is held.
#[inline(always)]
#[track_caller]
pub fn assert_may_allocate() {
    sync::assert_may_allocate::<Threads>();
}

/// Panics, in debug builds, if the caller holds a lock.
///
/// # Panics
/// If a lock is held.
#[inline(always)]
#[track_caller]
pub fn assert_none_held() {
    sync::assert_none_held::<Threads>();
}
