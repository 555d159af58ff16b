//! A reader-writer lock that readers on different CPUs acquire without writing the same cache line.
//!
//! Each CPU has a word on its own cache line. A reader increments the count in the word of its CPU. A writer acquires
//! the writer lock, sets `CLOSED` in every word, and waits until every count is 0. Faults on different CPUs in one
//! address space therefore write no common word (rule: no-shared-fault-lock), and a write acquisition costs one atomic
//! operation per CPU.
//!
//! Writers hold the lock during long operations. A CPU that waits for a writer halts until the writer releases the lock
//! and wakes it. A writer that waits for readers naps instead, because a reader releases the lock by a single
//! instruction and wakes no CPU.

extern crate alloc as rust_alloc;

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering, fence};

use rust_alloc::vec::Vec;

use super::stat::{self, ALWAYS, TAG};
use super::{Functions, Halted, Rank, RawLock, Step, Threads, Wait, order, step};
use crate::addr::CpuId;
use crate::handle::{OutOfMemory, TryPush};

/// The word of a CPU: the number of readers times `READER`, plus `ALWAYS`, plus `CLOSED` while a writer holds the lock.
/// The upper half is used by the lock statistics.
#[repr(align(64))]
struct Word(AtomicU32);

impl Word {
    const fn new() -> Self {
        Self(AtomicU32::new(ALWAYS))
    }

    /// Sets `CLOSED`, which stops new readers, and waits for the present ones. Only the holder of the writer lock sets
    /// and clears the bit, so an atomic addition sets it and an atomic subtraction clears it.
    #[inline]
    fn close(&self, threads: &'static Functions, rank: Rank) {
        if self.0.fetch_add(CLOSED, Ordering::Acquire) & READERS != 0 {
            wait_for_readers(threads, rank, &self.0);
        }
    }

    #[inline]
    fn open(&self) {
        self.0.fetch_sub(CLOSED, Ordering::Release);
    }
}

const CLOSED: u32 = 1;
const READER: u32 = 2;
const READERS: u32 = !(TAG | ALWAYS | CLOSED);

/// A value protected by a reader-writer lock with one reader word per CPU. `H` is the [`Threads`] of the machine.
pub struct SpreadLock<T, H> {
    rank: Rank,
    /// The lock that a writer holds. The lock-order check treats it and the reader words as one lock.
    writer: RawLock,
    /// The word of CPU 0.
    first: Word,
    /// The words of the CPUs from 1 on.
    others: Vec<Word>,
    /// The CPUs that are halted until the writer releases the lock.
    halted: Halted,
    threads: PhantomData<fn() -> H>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives either one writer or several readers access to the value.
unsafe impl<T: Send, H> Send for SpreadLock<T, H> {}
// SAFETY: as above: readers on several threads need `T: Sync`, writers `T: Send`.
unsafe impl<T: Send + Sync, H> Sync for SpreadLock<T, H> {}

impl<T, H: Threads> SpreadLock<T, H> {
    /// Creates a lock of `rank` around `value`, for a machine with `cpus` CPUs.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the words cannot be allocated; `value` is dropped.
    pub fn try_new(rank: Rank, cpus: usize, value: T) -> Result<Self, OutOfMemory> {
        let mut others = Vec::new();
        let more = cpus.saturating_sub(1);
        others.try_make_room(more)?;
        others.resize_with(more, Word::new);
        Ok(Self {
            rank,
            writer: RawLock::new(),
            first: Word::new(),
            others,
            halted: Halted::new(),
            threads: PhantomData,
            value: UnsafeCell::new(value),
        })
    }

    /// Acquires the lock for reading, on CPU `cpu`.
    ///
    /// # Panics
    /// If the machine has no such CPU. In debug builds, if a lock of this or a later rank is held.
    #[inline]
    #[track_caller]
    pub fn read(&self, cpu: CpuId) -> SpreadReadGuard<'_, T, H> {
        order::check(H::functions(), self.rank);
        step::<H>(Step::Lock(self.rank));
        let word = match cpu.index() {
            0 => &self.first.0,
            index => &self.others[index - 1].0,
        };
        if word.fetch_add(READER, Ordering::Acquire) & stat::slow_bits() != 0 {
            self.enter_slowly(word);
        }
        order::acquired(H::functions(), self.rank);
        SpreadReadGuard {
            lock: self,
            word,
            not_send: PhantomData,
        }
    }

    /// Acquires the lock for writing.
    ///
    /// # Panics
    /// In debug builds, if a lock of this or a later rank is held.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> SpreadWriteGuard<'_, T, H> {
        self.write_as(self.rank)
    }

    /// Acquires the lock for writing as a lock of `rank`. A fork holds the lock of the parent's areas and acquires the
    /// lock of the child's areas with `Rank::SpaceChild`. A thread that holds the child's lock must not wait for the
    /// parent's lock.
    ///
    /// # Panics
    /// In debug builds, if a lock of `rank` or a later one is held.
    #[inline]
    #[track_caller]
    pub fn write_as(&self, rank: Rank) -> SpreadWriteGuard<'_, T, H> {
        self.writer
            .lock_or::<H>(rank, || self.wait_for_writer(rank));
        self.close(rank, false)
    }

    /// Acquires the lock for writing while the caller holds one or more other locks of its rank. All threads that hold
    /// several such locks must acquire them in the same order. In this order a child comes after its parent, because a
    /// fork holds both locks.
    ///
    /// # Panics
    /// In debug builds, if no lock of this rank is held, or if a lock of a later rank is held.
    #[track_caller]
    pub fn write_beside(&self) -> SpreadWriteGuard<'_, T, H> {
        self.writer.lock_beside::<H>(self.rank, &self.halted);
        self.close(self.rank, true)
    }

    /// Closes all words and waits for their readers. The caller holds the writer lock.
    #[inline(always)]
    fn close(&self, rank: Rank, beside: bool) -> SpreadWriteGuard<'_, T, H> {
        let before = self.first.0.fetch_add(CLOSED, Ordering::Acquire);
        if before & READERS != 0 || !self.others.is_empty() {
            self.close_to_others(rank);
        }
        fence(Ordering::Acquire);
        if stat::is_on() {
            self.count_closed(rank);
        }
        SpreadWriteGuard {
            lock: self,
            rank,
            beside,
            not_send: PhantomData,
        }
    }

    /// Waits for the readers of the first word, which is already closed. Then closes the other words and waits for
    /// their readers.
    #[inline(never)]
    fn close_to_others(&self, rank: Rank) {
        if self.first.0.load(Ordering::Acquire) & READERS != 0 {
            wait_for_readers(H::functions(), rank, &self.first.0);
        }
        for word in &self.others {
            word.close(H::functions(), rank);
        }
    }

    /// Opens all words except the first. Not inlined, so that the loop adds no code to the path of a machine with one
    /// CPU.
    #[inline(never)]
    fn open_others(&self) {
        for word in &self.others {
            word.open();
        }
    }

    /// Records in the lock statistics that this CPU has written every word.
    #[cold]
    fn count_closed(&self, rank: Rank) {
        for Word(word) in core::iter::once(&self.first).chain(&self.others) {
            count(H::functions(), rank, word, false);
        }
    }

    /// Returns the value without locking, because `&mut self` excludes other access.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Waits for the readers that acquired the lock through `word` before the writer closed it.
#[cold]
fn wait_for_readers(threads: &'static Functions, rank: Rank, word: &AtomicU32) {
    let mut wait = Wait::for_lock(threads, rank);
    while word.load(Ordering::Acquire) & READERS != 0 {
        wait.turn();
    }
}

/// The slow path of a reader, which has already incremented the count in `word`. If a writer has closed the word, the
/// reader decrements the count, waits until the writer has released the lock, and increments it again.
#[cold]
fn enter_slowly(threads: &'static Functions, rank: Rank, word: &AtomicU32, halted: &Halted) {
    let mut waited = false;
    let mut wait = Wait::for_lock(threads, rank);
    let open = || word.load(Ordering::Relaxed) & CLOSED == 0;
    while word.load(Ordering::Acquire) & CLOSED != 0 {
        waited = true;
        word.fetch_sub(READER, Ordering::Release);
        while !open() {
            wait.turn_until(halted, open);
        }
        word.fetch_add(READER, Ordering::Acquire);
    }
    count(threads, rank, word, waited);
}

/// Records in the lock statistics that this CPU has written `word`.
fn count(threads: &Functions, rank: Rank, word: &AtomicU32, waited: bool) {
    let old = word.load(Ordering::Relaxed);
    let tag = stat::taken(threads, rank, word, old, waited);
    // Other CPUs can change the lower half of the word at the same time.
    let retagged = |now: u32| Some(now & !TAG | tag);
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, retagged);
}

impl<T, H> fmt::Debug for SpreadLock<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpreadLock")
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}

/// Shared access to the value of a [`SpreadLock`], until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct SpreadReadGuard<'a, T, H: Threads> {
    lock: &'a SpreadLock<T, H>,
    word: &'a AtomicU32,
    not_send: PhantomData<*const ()>,
}

impl<T, H: Threads> Deref for SpreadReadGuard<'_, T, H> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a reader is counted in `word`, so no writer has access to the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, H: Threads> Drop for SpreadReadGuard<'_, T, H> {
    #[inline]
    fn drop(&mut self) {
        order::released(H::functions(), self.lock.rank);
        self.word.fetch_sub(READER, Ordering::Release);
        step::<H>(Step::Unlock(self.lock.rank));
    }
}

impl<T: fmt::Debug, H: Threads> fmt::Debug for SpreadReadGuard<'_, T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Exclusive access to the value of a [`SpreadLock`], until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct SpreadWriteGuard<'a, T, H: Threads> {
    lock: &'a SpreadLock<T, H>,
    /// The rank as which the lock was acquired.
    rank: Rank,
    /// Whether the caller held another lock of the same rank when it acquired this one.
    beside: bool,
    not_send: PhantomData<*const ()>,
}

impl<T, H: Threads> Deref for SpreadWriteGuard<'_, T, H> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the writer closed every word and saw no reader in any.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, H: Threads> DerefMut for SpreadWriteGuard<'_, T, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `&mut self` is the only guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, H: Threads> SpreadLock<T, H> {
    /// Waits for the other writers, and acquires the writer lock.
    #[cold]
    #[inline(never)]
    fn wait_for_writer(&self, rank: Rank) {
        self.writer.wait(H::functions(), rank, Some(&self.halted));
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(&self, word: &AtomicU32) {
        enter_slowly(H::functions(), self.rank, word, &self.halted);
    }
}

impl<T, H: Threads> SpreadLock<T, H> {
    /// Releases the lock of a writer on a machine with several CPUs, and wakes the CPUs that halted to wait for it.
    #[inline(never)]
    fn release_to_others(&self, rank: Rank, beside: bool) {
        self.first.open();
        self.open_others();
        if beside {
            self.writer.unlock_beside::<H>(rank);
        } else {
            self.writer.unlock::<H>(rank);
        }
        self.halted.wake(H::functions());
    }
}

impl<T, H: Threads> Drop for SpreadWriteGuard<'_, T, H> {
    // On a machine with one CPU, no CPU is halted. The release for such a machine is inlined, so that the guard stays
    // in registers.
    #[inline(always)]
    fn drop(&mut self) {
        let (lock, rank, beside) = (self.lock, self.rank, self.beside);
        if !lock.others.is_empty() {
            lock.release_to_others(rank, beside);
            return;
        }
        lock.first.open();
        if beside {
            lock.writer.unlock_beside::<H>(rank);
        } else {
            lock.writer.unlock::<H>(rank);
        }
    }
}

impl<T: fmt::Debug, H: Threads> fmt::Debug for SpreadWriteGuard<'_, T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::Rank;
    use crate::addr::CpuId;
    use crate::sync::{OneCpu, assert_none_held};
    use std::thread;

    type SpreadLock<T> = super::SpreadLock<T, OneCpu>;

    #[test]
    fn writers_exclude_readers_on_every_cpu() {
        let lock = SpreadLock::try_new(Rank::Space, 4, (0u32, 0u32)).unwrap();
        thread::scope(|scope| {
            for cpu in 0..4 {
                let lock = &lock;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let pair = lock.read(CpuId::new(cpu));
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.read(CpuId::new(0)), (200, 200));
    }

    #[test]
    fn several_locks_of_one_rank_are_held_beside_one_another() {
        let locks = [0; 40].map(|value| SpreadLock::try_new(Rank::Space, 2, value).unwrap());
        let mut guards = std::vec![locks[0].write()];
        guards.extend(locks[1..].iter().map(SpreadLock::write_beside));
        for guard in &mut guards {
            **guard += 1;
        }
        drop(guards);
        assert_none_held::<OneCpu>();
        let read = locks.iter().map(|lock| *lock.read(CpuId::new(1)));
        assert!(read.into_iter().all(|value| value == 1));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "no Space beside which another may be taken")]
    fn the_first_of_several_locks_is_taken_as_such() {
        let lock = SpreadLock::try_new(Rank::Space, 1, ()).unwrap();
        let _guard = lock.write_beside();
    }
}
