//! The advisory locks of an inode.

use crate::fs::locks::{
    queue::{Requests, Walk},
    record::{Holder, Record},
    record_locks::{AcquireError, RecordLocks},
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::OutOfMemory;

/// The kind of an advisory lock. Locks of different kinds do not conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockFamily {
    /// `fcntl` locks of ranges.
    Record,
    /// `flock` locks of the complete file.
    Whole,
}

/// The number of ranges that are locked through one descriptor table or one open file. Used to estimate the memory of
/// the locks.
#[derive(Debug, Default)]
pub struct Held(AtomicU64);

impl Held {
    /// Creates a count of zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns an estimate of the kernel memory in bytes that the locked ranges use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        /// Memory of one range in bytes, if its piece is half full.
        const RANGE: u64 = 48;
        self.0.load(Ordering::Relaxed) * RANGE
    }

    /// Records that the number of ranges of a holder changed from `before` to `after`. The count stops at zero:
    /// `execve` installs a new table, which does not count the ranges that were locked through the old one.
    fn change(&self, before: usize, after: usize) {
        let changed = |count: u64| Some((count + after as u64).saturating_sub(before as u64));
        let changed = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
        debug_assert!(changed.is_ok());
    }
}

/// The advisory locks of an inode.
pub struct FileLocks {
    /// The locks and the blocked requests. This field has the rank of a leaf, because the drop of an open file releases
    /// its advisory locks, and an open file can be dropped with the last area that maps it.
    pub(in crate::fs) state: Lock<State>,
    /// Set before the first lock is taken. While it is not set, closing the file need not acquire `state`.
    pub(in crate::fs) used: AtomicBool,
}

/// The locks of a file by kind.
pub(in crate::fs) struct State {
    records: Family,
    whole: Family,
}

/// The locks of one kind, and the requests that wait for such locks.
pub(in crate::fs) struct Family {
    locks: RecordLocks,
    pub(in crate::fs) requests: Requests,
}

impl Family {
    const fn new() -> Self {
        Self {
            locks: RecordLocks::new(),
            requests: Requests::new(),
        }
    }
}

impl State {
    /// Returns the locks of one kind.
    pub(in crate::fs) fn family(&mut self, family: LockFamily) -> &mut Family {
        match family {
            LockFamily::Record => &mut self.records,
            LockFamily::Whole => &mut self.whole,
        }
    }
}

impl Default for FileLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl FileLocks {
    /// Creates an empty set of locks.
    #[must_use]
    pub const fn new() -> Self {
        let state = State {
            records: Family::new(),
            whole: Family::new(),
        };
        Self {
            state: Lock::new(Rank::Lists, state),
            used: AtomicBool::new(false),
        }
    }

    /// Returns a record lock that conflicts with `wanted`, or `None` if there is none.
    #[must_use]
    pub fn conflict(&self, wanted: &Record) -> Option<Record> {
        self.state.lock().records.locks.conflict(wanted)
    }

    /// Tries to take a lock. Returns a conflicting lock, or `None` if the lock was taken. Updates the number of locked
    /// ranges in `held`.
    ///
    /// # Errors
    /// `ENOLCK` if memory is exhausted.
    pub(in crate::fs) fn attempt(
        &self,
        family: LockFamily,
        wanted: Record,
        held: &Held,
    ) -> Result<Option<Record>, Errno> {
        let mut state = self.state.lock();
        let locks = &mut state.family(family).locks;
        let before = locks.ranges_of(wanted.holder);
        match locks.acquire(wanted) {
            Ok(()) => {
                held.change(before, locks.ranges_of(wanted.holder));
                Ok(None)
            }
            Err(AcquireError::Conflict(conflict)) => Ok(Some(conflict)),
            Err(AcquireError::OutOfMemory) => Err(Errno::ENOLCK),
        }
    }

    /// Wakes the requests that conflict with no held lock. Of requests that conflict with each other, wakes only the
    /// first.
    pub(in crate::fs) fn wake(&self, family: LockFamily) {
        let mut walk = Walk::default();
        loop {
            let next = {
                let mut state = self.state.lock();
                let Family { locks, requests } = state.family(family);
                requests.next(&mut walk, |wanted| locks.conflict(wanted).is_some())
            };
            let Some(request) = next else {
                return;
            };
            request.queue.wake_all();
        }
    }

    /// Releases the locks of `holder` on the bytes from `first` to `last`, inclusive, and wakes requests.
    ///
    /// # Errors
    /// `ENOLCK` if a lock must be split and memory is exhausted.
    pub fn release(
        &self,
        family: LockFamily,
        (holder, first, last): (Holder, u64, u64),
        held: &Held,
    ) -> Result<(), Errno> {
        if self.used.load(Ordering::Relaxed) {
            let mut state = self.state.lock();
            let locks = &mut state.family(family).locks;
            let before = locks.ranges_of(holder);
            let released = locks.release(holder, first, last);
            held.change(before, locks.ranges_of(holder));
            drop(state);
            released.map_err(|OutOfMemory| Errno::ENOLCK)?;
            self.wake(family);
        }
        Ok(())
    }

    /// Releases all locks of `holder`, of both kinds. Called when a process closes a descriptor of the file, and when
    /// an open file of the file is dropped.
    pub fn forget(&self, holder: Holder, held: &Held) {
        if !self.used.load(Ordering::Relaxed) {
            return;
        }
        let (records, whole) = {
            let mut state = self.state.lock();
            let records = state.records.locks.release_all(holder);
            (records, state.whole.locks.release_all(holder))
        };
        held.change(records + whole, 0);
        if records > 0 {
            self.wake(LockFamily::Record);
        }
        if whole > 0 {
            self.wake(LockFamily::Whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Held;

    #[test]
    fn ranges_count_while_they_are_held() {
        let held = Held::new();
        held.change(0, 3);
        let three = held.bytes();
        held.change(3, 1);
        assert_eq!(3 * held.bytes(), three);
        // The ranges were counted in the table that `execve` replaced, and are released through the new one.
        held.change(5, 0);
        assert_eq!(held.bytes(), 0);
        held.change(0, 3);
        assert_eq!(held.bytes(), three);
    }
}
