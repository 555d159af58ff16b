//! A spin lock with a rank. A waiter spins for a bounded time and then naps.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use super::stat::{self, FREE, TAKEN};
use super::{Halted, Rank, Step, Wait, order, step};

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
    pub fn lock(&self, rank: Rank) {
        order::check(rank);
        step(Step::Lock(rank));
        if !self.take_expected() {
            self.wait(rank, None);
        }
        order::acquired(rank);
    }

    /// Like [`lock`](Self::lock), but calls `wait` if the lock is not free. `wait` must wait for the lock and acquire
    /// it. Values that are needed only for a wait can be computed in `wait`.
    #[inline]
    #[track_caller]
    pub(super) fn lock_or(&self, rank: Rank, wait: impl FnOnce()) {
        order::check(rank);
        step(Step::Lock(rank));
        if !self.take_expected() {
            wait();
        }
        order::acquired(rank);
    }

    /// Acquires the lock while the caller holds another lock of the same rank. All threads that hold several such locks
    /// must acquire them in the same order. The caller must release the lock by `unlock_beside`.
    #[track_caller]
    pub(super) fn lock_beside(&self, rank: Rank, halted: &Halted) {
        order::check_beside(rank);
        step(Step::Lock(rank));
        if !self.take_expected() {
            self.wait(rank, Some(halted));
        }
    }

    /// Acquires the lock if it is free. Returns whether it did.
    #[inline]
    pub fn try_lock(&self, rank: Rank) -> bool {
        step(Step::Lock(rank));
        let taken = self.take_expected() || self.try_take(rank, false);
        if taken {
            order::acquired(rank);
        }
        taken
    }

    /// Releases the lock, which the caller must hold. Private to the crate, because a caller that released the lock of
    /// another thread would break mutual exclusion.
    #[inline]
    pub(crate) fn unlock(&self, rank: Rank) {
        order::released(rank);
        self.unlock_beside(rank);
    }

    /// Releases a lock that was acquired by `lock_beside`. The lock-order check records this lock and the other lock of
    /// `rank` as one lock.
    #[inline]
    pub(super) fn unlock_beside(&self, rank: Rank) {
        debug_assert!(self.is_locked(), "released a free lock");
        // No other thread writes the word of a held lock, so a load and a store are sufficient.
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(word & !TAKEN, Ordering::Release);
        step(Step::Unlock(rank));
    }

    /// Whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TAKEN != 0
    }

    /// Acquires the lock on the fast path: if it is free and the lock statistics are off. Returns whether it did.
    #[inline]
    fn take_expected(&self) -> bool {
        self.0
            .compare_exchange(
                stat::expected(),
                FREE | TAKEN,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Acquires the lock if it is free, and updates the lock statistics. Returns whether it did.
    #[cold]
    fn try_take(&self, rank: Rank, waited: bool) -> bool {
        let old = self.0.load(Ordering::Relaxed);
        if old & TAKEN != 0
            || self
                .0
                .compare_exchange(old, old | TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        let tag = stat::taken(rank, &self.0, old, waited);
        self.0.store(tag | TAKEN, Ordering::Relaxed);
        true
    }

    /// Waits for the lock and acquires it. With `halted`, this CPU adds itself to that set and halts: the holder must
    /// wake the CPUs in the set after it releases the lock.
    #[cold]
    pub(super) fn wait(&self, rank: Rank, halted: Option<&Halted>) {
        let mut waited = false;
        let mut wait = Wait::for_lock(rank);
        loop {
            while self.is_locked() {
                waited = true;
                match halted {
                    Some(halted) => wait.turn_until(halted, || !self.is_locked()),
                    None => wait.turn(),
                }
            }
            if self.try_take(rank, waited) {
                return;
            }
        }
    }
}

/// A value protected by a spin lock, for critical sections of a few hundred instructions. A CPU that waits for the lock
/// serves invalidations through [`Hooks::relax`](super::Hooks). It naps if the wait is long, because the holder's CPU
/// may be a virtual CPU that is not running.
pub struct Lock<T: ?Sized> {
    rank: Rank,
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the value.
unsafe impl<T: ?Sized + Send> Send for Lock<T> {}
// SAFETY: as above; a shared lock lets each thread access the value in turn.
unsafe impl<T: ?Sized + Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Creates a lock of `rank` around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self {
            rank,
            raw: RawLock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Lock<T> {
    /// Acquires the lock.
    ///
    /// # Panics
    /// In debug builds, if a lock of this or a later rank is held.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockGuard<'_, T> {
        self.raw.lock(self.rank);
        LockGuard {
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Acquires the lock if it is free. The lock order does not apply, because the function does not wait.
    #[inline]
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        // Create the guard only if the lock was acquired: dropping it would release the lock of another thread.
        self.raw.try_lock(self.rank).then(|| LockGuard {
            lock: self,
            not_send: PhantomData,
        })
    }

    /// Returns the value without locking, because `&mut self` excludes other access.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("Lock").field(&&*guard).finish(),
            None => f.write_str("Lock(held)"),
        }
    }
}

/// Exclusive access to the value of a [`Lock`], until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard<'a, T: ?Sized> {
    lock: &'a Lock<T>,
    /// Makes the guard not `Send`, because the thread that acquired a lock must release it.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for LockGuard<'_, T> {}

impl<T: ?Sized> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves that this thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `&mut self` is the only guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock(self.lock.rank);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for LockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
