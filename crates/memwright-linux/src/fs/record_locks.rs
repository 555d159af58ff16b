//! Advisory locks on ranges of a file: `fcntl` record locks, and `flock` as a lock on all of it.

use alloc::vec::Vec;

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process, by its id: the locks of `F_SETLK`.
    Process(u64),
    /// An open file, by its identity: the locks of `F_OFD_SETLK` and `flock`.
    OpenFile(u64),
}

/// How much a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// Others may hold shared locks too.
    Shared,
    /// Nobody else may hold any.
    Exclusive,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose it is.
    pub holder: Holder,
    /// Shared or exclusive.
    pub strength: Strength,
    /// First byte.
    pub first: u64,
    /// Last byte; `u64::MAX` for the end of the file, wherever it comes to be.
    pub last: u64,
}

impl Record {
    fn overlaps(&self, first: u64, last: u64) -> bool {
        self.first <= last && first <= self.last
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.holder != other.holder
            && self.overlaps(other.first, other.last)
            && (self.strength == Strength::Exclusive || other.strength == Strength::Exclusive)
    }
}

/// The locks of one file.
#[derive(Debug, Default)]
pub struct RecordLocks {
    records: Vec<Record>,
}

impl RecordLocks {
    /// No locks.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            records: Vec::new(),
        }
    }

    /// The first lock that stands in the way of `wanted`.
    #[must_use]
    pub fn conflict(&self, wanted: &Record) -> Option<Record> {
        self.records
            .iter()
            .find(|record| record.conflicts(wanted))
            .copied()
    }

    /// Removes what `holder` holds between `first` and `last`; what lies outside stays.
    pub fn release(&mut self, holder: Holder, first: u64, last: u64) {
        let mut kept = Vec::with_capacity(self.records.len() + 1);
        for record in self.records.drain(..) {
            if record.holder != holder || !record.overlaps(first, last) {
                kept.push(record);
                continue;
            }
            if record.first < first {
                kept.push(Record {
                    last: first - 1,
                    ..record
                });
            }
            if record.last > last {
                kept.push(Record {
                    first: last + 1,
                    ..record
                });
            }
        }
        self.records = kept;
    }

    /// Takes the lock, in place of what its holder held on that range.
    ///
    /// # Errors
    /// The lock that stands in the way; nothing has changed then.
    pub fn acquire(&mut self, wanted: Record) -> Result<(), Record> {
        if let Some(conflict) = self.conflict(&wanted) {
            return Err(conflict);
        }
        self.release(wanted.holder, wanted.first, wanted.last);
        self.records.push(wanted);
        Ok(())
    }

    /// Removes everything that `holder` holds; returns whether there was anything.
    pub fn release_all(&mut self, holder: Holder) -> bool {
        let before = self.records.len();
        self.records.retain(|record| record.holder != holder);
        before != self.records.len()
    }

    /// Whether no lock is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder::Process(1);
    const B: Holder = Holder::Process(2);

    fn record(holder: Holder, strength: Strength, first: u64, last: u64) -> Record {
        Record {
            holder,
            strength,
            first,
            last,
        }
    }

    #[test]
    fn unlocking_the_middle_leaves_both_ends() {
        let mut locks = RecordLocks::new();
        locks
            .acquire(record(A, Strength::Exclusive, 0, u64::MAX))
            .unwrap();
        locks.release(A, 10, 19);
        assert_eq!(locks.acquire(record(B, Strength::Shared, 10, 19)), Ok(()));
        let left = record(A, Strength::Exclusive, 0, 9);
        let right = record(A, Strength::Exclusive, 20, u64::MAX);
        assert_eq!(locks.acquire(record(B, Strength::Shared, 9, 12)), Err(left));
        assert_eq!(
            locks.acquire(record(B, Strength::Shared, 12, 20)),
            Err(right)
        );
        assert!(locks.release_all(A));
        assert!(!locks.release_all(A));
        assert_eq!(
            locks.acquire(record(B, Strength::Exclusive, 0, u64::MAX)),
            Ok(())
        );
    }

    #[test]
    fn sharing_and_conversion() {
        let mut locks = RecordLocks::new();
        locks.acquire(record(A, Strength::Shared, 0, 9)).unwrap();
        locks.acquire(record(B, Strength::Shared, 5, 9)).unwrap();
        let shared = record(B, Strength::Shared, 5, 9);
        assert_eq!(
            locks.acquire(record(A, Strength::Exclusive, 0, 9)),
            Err(shared)
        );
        assert_eq!(locks.acquire(record(A, Strength::Exclusive, 0, 4)), Ok(()));
        assert!(locks.conflict(&record(B, Strength::Shared, 4, 4)).is_some());
        assert!(locks.conflict(&record(B, Strength::Shared, 5, 5)).is_none());
        locks.release_all(A);
        locks.release_all(B);
        assert!(locks.is_empty());
    }
}
