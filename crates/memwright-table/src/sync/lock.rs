//! A spin lock with a rank. A waiter spins for a bounded time and then naps.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use super::stat::{self, FREE, TAKEN};
use super::{Functions, Halted, Rank, Step, Threads, Wait, order, step};

/// A lock without a value: one word, which may be in a frame's metadata. The upper half of the word is used by the lock
/// statistics ([`stat`]).
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RawLock(AtomicU32);

impl RawLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Acquires the lock, waiting for it if necessary. The caller must release it by `unlock` with the same rank.
    ///
    /// # Panics
    /// In debug builds, if a lock of this or a later rank is held.
    #[inline]
    #[track_caller]
    pub fn lock<H: Threads>(&self, rank: Rank) {
        begin::<H>(rank);
        self.take_or_wait(H::functions(), rank);
        order::acquired(H::functions(), rank);
    }

    /// Like [`lock`](Self::lock), but calls `wait` if the lock is not free. `wait` must wait for the lock and acquire
    /// it. Values that are needed only for a wait can be computed in `wait`.
    #[inline]
    #[track_caller]
    pub(super) fn lock_or<H: Threads>(&self, rank: Rank, wait: impl FnOnce()) {
        begin::<H>(rank);
        if !self.take_expected() {
            wait();
        }
        order::acquired(H::functions(), rank);
    }

    /// Acquires the lock while the caller holds another lock of the same rank. All threads that hold several such locks
    /// must acquire them in the same order. The caller must release the lock by `unlock_beside`.
    #[track_caller]
    pub(super) fn lock_beside<H: Threads>(&self, rank: Rank, halted: &Halted) {
        order::check_beside(H::functions(), rank);
        step::<H>(Step::Lock(rank));
        if !self.take_expected() {
            self.wait(H::functions(), rank, Some(halted));
        }
    }

    /// Acquires the lock if it is free. Returns whether it did.
    #[inline]
    pub fn try_lock<H: Threads>(&self, rank: Rank) -> bool {
        step::<H>(Step::Lock(rank));
        let taken = self.take_expected() || self.try_take(H::functions(), rank, false);
        if taken {
            order::acquired(H::functions(), rank);
        }
        taken
    }

    /// Releases the lock, which the caller must hold. Private to the crate, because a caller that released the lock of
    /// another thread would break mutual exclusion.
    #[inline]
    pub(crate) fn unlock<H: Threads>(&self, rank: Rank) {
        order::released(H::functions(), rank);
        self.unlock_beside::<H>(rank);
    }

    /// Releases a lock that was acquired by `lock_beside`. The lock-order check records this lock and the other lock of
    /// `rank` as one lock.
    #[inline]
    pub(super) fn unlock_beside<H: Threads>(&self, rank: Rank) {
        debug_assert!(self.is_locked(), "released a free lock");
        self.mark_free();
        step::<H>(Step::Unlock(rank));
    }

    /// Whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TAKEN != 0
    }

    /// Acquires the lock on the fast path: if it is free and the lock statistics are off. Returns whether it did.
    #[inline]
    fn take_expected(&self) -> bool {
        let (old, new) = (stat::expected(), FREE | TAKEN);
        let found = (self.0).compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed);
        found.is_ok()
    }

    #[inline]
    fn take_or_wait(&self, threads: &'static Functions, rank: Rank) {
        if !self.take_expected() {
            self.wait(threads, rank, None);
        }
    }

    /// Marks the held lock as free. No other thread writes the word of a held lock, so a load and a store are
    /// sufficient.
    #[inline]
    fn mark_free(&self) {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(word & !TAKEN, Ordering::Release);
    }

    /// Acquires the lock if it is free, and updates the lock statistics. Returns whether it did.
    #[cold]
    fn try_take(&self, threads: &Functions, rank: Rank, waited: bool) -> bool {
        let old = self.0.load(Ordering::Relaxed);
        if old & TAKEN != 0
            || self
                .0
                .compare_exchange(old, old | TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        let tag = stat::taken(threads, rank, &self.0, old, waited);
        self.0.store(tag | TAKEN, Ordering::Relaxed);
        true
    }

    /// Waits for the lock and acquires it. If `halted` is `Some`, this CPU adds itself to that set and halts, and the
    /// holder must wake the CPUs in the set after it releases the lock.
    #[cold]
    pub(super) fn wait(&self, threads: &'static Functions, rank: Rank, halted: Option<&Halted>) {
        let mut waited = false;
        let mut wait = Wait::for_lock(threads, rank);
        loop {
            while self.is_locked() {
                waited = true;
                match halted {
                    Some(halted) => wait.turn_until(halted, || !self.is_locked()),
                    None => wait.turn(),
                }
            }
            if self.try_take(threads, rank, waited) {
                return;
            }
        }
    }
}

/// Checks that the lock order permits acquiring a lock of `rank`, and reports the step to the test scheduler.
#[inline]
#[track_caller]
fn begin<H: Threads>(rank: Rank) {
    order::check(H::functions(), rank);
    step::<H>(Step::Lock(rank));
}

/// A value protected by a spin lock, for critical sections of a few hundred instructions. A CPU that waits for the lock
/// serves invalidations through [`Threads::relax`]. It naps if the wait is long, because the holder's CPU may be a
/// virtual CPU that is not running. `H` is the [`Threads`] of the machine.
pub struct Lock<T: ?Sized, H> {
    rank: Rank,
    raw: RawLock,
    threads: PhantomData<fn() -> H>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the value.
unsafe impl<T: ?Sized + Send, H> Send for Lock<T, H> {}
// SAFETY: as above; a shared lock lets each thread access the value in turn.
unsafe impl<T: ?Sized + Send, H> Sync for Lock<T, H> {}

impl<T, H> Lock<T, H> {
    /// Creates a lock of `rank` around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self {
            rank,
            raw: RawLock::new(),
            threads: PhantomData,
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, H: Threads> Lock<T, H> {
    /// Acquires the lock.
    ///
    /// # Panics
    /// In debug builds, if a lock of this or a later rank is held.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockGuard<'_, T, H> {
        self.raw.lock::<H>(self.rank);
        LockGuard(self, PhantomData)
    }

    /// Acquires the lock if it is free. The lock order does not apply, because the function does not wait.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T, H>> {
        // Create the guard only if the lock was acquired: dropping it would release the lock of another thread.
        let taken = self.raw.try_lock::<H>(self.rank);
        taken.then(|| LockGuard(self, PhantomData))
    }

    /// Returns the value without locking, because `&mut self` excludes other access.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug, H: Threads> fmt::Debug for Lock<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("Lock").field(&&*guard).finish(),
            None => f.write_str("Lock(held)"),
        }
    }
}

/// Exclusive access to the value of a [`Lock`], until dropped. The pointer makes the guard not `Send`, because the thread
/// that acquired a lock must release it.
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard<'a, T: ?Sized, H: Threads>(&'a Lock<T, H>, PhantomData<*const ()>);

// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync, H: Threads> Sync for LockGuard<'_, T, H> {}

impl<T: ?Sized, H: Threads> Deref for LockGuard<'_, T, H> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves that this thread holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T: ?Sized, H: Threads> DerefMut for LockGuard<'_, T, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `&mut self` is the only guard.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T: ?Sized, H: Threads> Drop for LockGuard<'_, T, H> {
    #[inline]
    fn drop(&mut self) {
        self.0.raw.unlock::<H>(self.0.rank);
    }
}

impl<T: ?Sized + fmt::Debug, H: Threads> fmt::Debug for LockGuard<'_, T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
