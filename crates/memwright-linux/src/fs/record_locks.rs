//! Advisory locks on ranges of a file: `fcntl` record locks, and `flock` as a lock on the complete range.
//!
//! The ranges of a holder are stored together and sorted by offset. Adjacent ranges of equal strength are merged.
//! Holders are stored in the order in which they took the first of their present locks (Linux 7.3 `fs/locks.c`,
//! `posix_lock_inode`). `F_GETLK` reports the first conflict in this order.

mod ranges;

use alloc::vec::Vec;
use memwright_table::{OutOfMemory, TryPush};
use ranges::Ranges;

/// The holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process, by its id: the locks of `F_SETLK`.
    Process(u64),
    /// An open file, by its identity: the locks of `F_OFD_SETLK` and `flock`.
    OpenFile(u64),
}

/// The strength of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// The lock does not conflict with other shared locks.
    Shared,
    /// The lock conflicts with every lock of another holder.
    Exclusive,
}

/// A lock on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The holder.
    pub holder: Holder,
    /// Shared or exclusive.
    pub strength: Strength,
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte; `u64::MAX` for a lock up to the end of the file, even if the file grows.
    pub last: u64,
}

/// The reason why a lock was not taken. The holder's locks are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireError {
    /// This lock of another holder conflicts.
    Conflict(Record),
    /// There is no memory for the lock.
    OutOfMemory,
}

/// The locks of one holder, with at least one range.
#[derive(Debug)]
struct Group {
    holder: Holder,
    ranges: Ranges,
}

impl Group {
    /// Returns the first range of this group that conflicts with `wanted`, or `None` if there is none. `wanted` belongs
    /// to another holder.
    fn conflict(&self, wanted: &Record) -> Option<Record> {
        let found = self
            .ranges
            .overlapping(wanted.first, wanted.last)
            .find(|range| {
                range.strength == Strength::Exclusive || wanted.strength == Strength::Exclusive
            })?;
        Some(Record {
            holder: self.holder,
            strength: found.strength,
            first: found.first,
            last: found.last,
        })
    }
}

/// The locks of one file.
#[derive(Debug, Default)]
pub struct RecordLocks {
    groups: Vec<Group>,
}

impl RecordLocks {
    /// Creates an empty set of locks.
    #[must_use]
    pub const fn new() -> Self {
        Self { groups: Vec::new() }
    }

    /// Returns the first lock that conflicts with `wanted`, or `None` if there is none.
    #[must_use]
    pub fn conflict(&self, wanted: &Record) -> Option<Record> {
        self.groups
            .iter()
            .filter(|group| group.holder != wanted.holder)
            .find_map(|group| group.conflict(wanted))
    }

    /// Returns the number of ranges of `holder`.
    #[must_use]
    pub fn ranges_of(&self, holder: Holder) -> usize {
        self.position(holder)
            .map_or(0, |index| self.groups[index].ranges.len())
    }

    fn position(&self, holder: Holder) -> Option<usize> {
        self.groups.iter().position(|group| group.holder == holder)
    }

    /// Unlocks the bytes from `first` to `last`, inclusive, for `holder`. Parts of its locks outside of this range stay
    /// locked.
    ///
    /// # Errors
    /// [`OutOfMemory`] if a lock must be split and memory is exhausted. The locks are unchanged then.
    pub fn release(&mut self, holder: Holder, first: u64, last: u64) -> Result<(), OutOfMemory> {
        let Some(index) = self.position(holder) else {
            return Ok(());
        };
        let group = &mut self.groups[index];
        group.ranges.set(first, last, None)?;
        if group.ranges.is_empty() {
            self.groups.remove(index);
        }
        Ok(())
    }

    /// Takes the lock `wanted`, which replaces the locks that its holder has in that range.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn acquire(&mut self, wanted: Record) -> Result<(), AcquireError> {
        if let Some(conflict) = self.conflict(&wanted) {
            return Err(AcquireError::Conflict(conflict));
        }
        let Record {
            holder,
            strength,
            first,
            last,
        } = wanted;
        if let Some(index) = self.position(holder) {
            let set = self.groups[index].ranges.set(first, last, Some(strength));
            return set.map_err(|OutOfMemory| AcquireError::OutOfMemory);
        }
        let mut group = Group {
            holder,
            ranges: Ranges::new(),
        };
        let set = group.ranges.set(first, last, Some(strength));
        set.and_then(|()| self.groups.try_push(group))
            .map_err(|OutOfMemory| AcquireError::OutOfMemory)
    }

    /// Removes all locks of `holder`. Returns the number of ranges that it had locked.
    pub fn release_all(&mut self, holder: Holder) -> usize {
        match self.position(holder) {
            Some(index) => self.groups.remove(index).ranges.len(),
            None => 0,
        }
    }

    /// Returns whether no lock is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Strength::{Exclusive, Shared};
    use alloc::vec;

    const A: Holder = Holder::Process(1);
    const B: Holder = Holder::Process(2);
    const C: Holder = Holder::OpenFile(1);

    fn record(holder: Holder, strength: Strength, first: u64, last: u64) -> Record {
        Record {
            holder,
            strength,
            first,
            last,
        }
    }

    /// Returns the ranges of `holder`.
    fn held(locks: &RecordLocks, holder: Holder) -> Vec<(u64, u64, Strength)> {
        let group = locks.groups.iter().find(|group| group.holder == holder);
        group.map_or(Vec::new(), |group| {
            let parts = group.ranges.overlapping(0, u64::MAX);
            parts
                .map(|range| (range.first, range.last, range.strength))
                .collect()
        })
    }

    #[test]
    fn unlocking_the_middle_leaves_both_ends() {
        let mut locks = RecordLocks::new();
        locks.acquire(record(A, Exclusive, 0, u64::MAX)).unwrap();
        locks.release(A, 10, 19).unwrap();
        assert_eq!(locks.acquire(record(B, Shared, 10, 19)), Ok(()));
        let left = AcquireError::Conflict(record(A, Exclusive, 0, 9));
        let right = AcquireError::Conflict(record(A, Exclusive, 20, u64::MAX));
        assert_eq!(locks.acquire(record(B, Shared, 9, 12)), Err(left));
        assert_eq!(locks.acquire(record(B, Shared, 12, 20)), Err(right));
        assert_eq!(locks.ranges_of(A), 2);
        assert_eq!(locks.release_all(A), 2);
        assert_eq!(locks.release_all(A), 0);
        assert_eq!(locks.acquire(record(B, Exclusive, 0, u64::MAX)), Ok(()));
    }

    #[test]
    fn sharing_and_conversion() {
        let mut locks = RecordLocks::new();
        locks.acquire(record(A, Shared, 0, 9)).unwrap();
        locks.acquire(record(B, Shared, 5, 9)).unwrap();
        let shared = AcquireError::Conflict(record(B, Shared, 5, 9));
        assert_eq!(locks.acquire(record(A, Exclusive, 0, 9)), Err(shared));
        assert_eq!(locks.acquire(record(A, Exclusive, 0, 4)), Ok(()));
        assert!(locks.conflict(&record(B, Shared, 4, 4)).is_some());
        assert!(locks.conflict(&record(B, Shared, 5, 5)).is_none());
        locks.release_all(A);
        locks.release_all(B);
        assert!(locks.is_empty());
    }

    #[test]
    fn ranges_join_and_part() {
        let all = u64::MAX;
        let cases = [
            // Adjacent ranges of equal strength become one lock.
            (10, 19, Some(Exclusive), vec![(10, 19, Exclusive)]),
            (20, 29, Some(Exclusive), vec![(10, 29, Exclusive)]),
            (0, 9, Some(Exclusive), vec![(0, 29, Exclusive)]),
            // Locking a part of a range with the same strength changes nothing.
            (5, 6, Some(Exclusive), vec![(0, 29, Exclusive)]),
            (
                10,
                19,
                Some(Shared),
                vec![(0, 9, Exclusive), (10, 19, Shared), (20, 29, Exclusive)],
            ),
            (
                15,
                24,
                None,
                vec![(0, 9, Exclusive), (10, 14, Shared), (25, 29, Exclusive)],
            ),
            (
                40,
                all,
                Some(Shared),
                vec![
                    (0, 9, Exclusive),
                    (10, 14, Shared),
                    (25, 29, Exclusive),
                    (40, all, Shared),
                ],
            ),
            (
                12,
                39,
                Some(Shared),
                vec![(0, 9, Exclusive), (10, all, Shared)],
            ),
            (0, all, None, vec![]),
        ];
        let mut locks = RecordLocks::new();
        for (first, last, strength, expected) in cases {
            match strength {
                Some(strength) => locks.acquire(record(A, strength, first, last)).unwrap(),
                None => locks.release(A, first, last).unwrap(),
            }
            assert_eq!(held(&locks, A), expected, "{first} {last} {strength:?}");
        }
        assert!(locks.is_empty());
    }

    #[test]
    fn conflicts_are_found_by_holder_then_by_place() {
        let mut locks = RecordLocks::new();
        locks.acquire(record(A, Exclusive, 100, 109)).unwrap();
        locks.acquire(record(B, Exclusive, 0, 9)).unwrap();
        locks.acquire(record(A, Exclusive, 50, 59)).unwrap();
        let wanted = record(C, Exclusive, 0, u64::MAX);
        assert_eq!(locks.conflict(&wanted), Some(record(A, Exclusive, 50, 59)));
        // A holder that replaces its lock keeps its position in the order of holders. A holder that releases its locks
        // and takes a new one is the last.
        locks.acquire(record(A, Shared, 50, 59)).unwrap();
        assert_eq!(locks.conflict(&wanted), Some(record(A, Shared, 50, 59)));
        locks.release(A, 0, u64::MAX).unwrap();
        locks.acquire(record(A, Exclusive, 50, 59)).unwrap();
        assert_eq!(locks.conflict(&wanted), Some(record(B, Exclusive, 0, 9)));
    }
}
